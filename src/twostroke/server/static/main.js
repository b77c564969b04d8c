// The page: a chat beside the engine that answers it, and one key for both.

import { Activity } from "./activity.js";
import { keepKey } from "./api.js";
import { Chat } from "./chat.js";
import { find, say } from "./dom.js";

const form = find("key-form");

function keyNeeded(message) {
  say(find("key-fault"), message);
  if (!form.hidden) return;
  form.hidden = false;
  find("key").focus();
}

const activity = new Activity(keyNeeded);
new Chat(keyNeeded);

form.addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(find("key").value.trim());
  form.hidden = true;
  activity.start();
  find("question").focus();
});
