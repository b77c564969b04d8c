"""Odd strings for tokenizers, and a page to train tiny ones on. Owns test data only."""

PAGE = """The ferry leaves the harbour at seven forty. Its engine turns twice for every stroke of the oars, and the old
pilot counts them: one, two, one, two. He says that a stroke pulled early costs more than a stroke pulled late, because
the water remembers. The passengers do not listen; they look at the gulls, the nets and the slow green light of the
buoy.

    def stroke(oar, count=2):
        for turn in range(count):
            if oar.is_early(turn):
                return "wait"
        return oar.pull(count)

In winter the timetable is shorter: 07:40, 09:15, 12:00 and 16:45, never on Sundays. Tickets cost 3.20 or 4.80, children
pay half, dogs travel free. "Who's first?" asks the mate, and they'll all say that it's the dog. Über der Förde liegt
Nebel, im Tränkhafen ruht das größte Schiff. Ça va? Déjà vu, naïve café. Привет, мир. 早上好，船长。港口很安静。
The ferry crosses the fjord in twenty minutes, the bridge in two, and yet the ferry is full on every summer morning.
The engine is older than the pilot, the pilot is older than the bridge, and the harbour is older than all of them.
1 12 123 1234 12345 123456 2024-02-29 10:00:00 0x1F 1e-05 [1, 2, 3] {"a": null} <b>bold</b> a+b=c; x != y && z || w
"""

ODD_STRINGS = [
    "",
    " ",
    "  ",
    "   a",
    "a ",
    " a b ",
    "a  b   c    d",
    "\t\t\t\t\t\ttest",
    "\ttab",
    "\n",
    "\n\n",
    "\n\n\n\nline",
    "\r\n",
    "a\n\n  b\n",
    " \n \n",
    "The ferry leaves the harbour at seven forty.",
    "the ferry leaves the harbour",
    "THE FERRY",
    "ferryferryferry",
    "it's they'll we've I'M YOU'RE",
    "12345678901234567890",
    "1 22 333 4444",
    "3.1415, 1,000,000; 1e-9",
    "größte Förde Über",
    "gro\u0308\u00dfte Fo\u0308rde U\u0308ber",
    "caf\u00e9 cafe\u0301 \u00c5 A\u030a \u212b",
    "na\u00efve \ufb01n \u2460 \uff21\uff22\uff23 \u00bd",
    "Привет, мир!",
    "早上好，船长。港口很安静。",
    "こんにちは 안녕하세요",
    "مرحبا بالعالم",
    "हिन्दी में",
    "🚢 🪢 👩‍👧 🇩🇪",
    "a\u200bb\u200dc\ufeff",
    "\u00a0\u2003\u3000x",
    "\u2581",
    "\u2581\u2581a \u2581b",
    "\x00\x01\x7f",
    "\ue000\U0010fffd\uffff",
    "def stroke(oar, count=2):\n    return oar.pull(count)\n",
    "        for turn in range(count):",
    "a+b=c; x != y && z || w",
    "!!!???...,,,;;;",
    "<<>>[]{}()",
    "<b>bold</b>",
    "<s>",
    "</s>",
    "<s>G",
    "<s> G",
    "a<s>b</s> c",
    "<unk>",
    "<0x41><0x0A>",
    "<think>hm</think> yes",
    "<think> \n\nhm",
    "x<table>  <tr>y",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|><|im_end|>",
    "aaaaaaaaaaaaaaaaaaaaaaa",
    "abababababababababab",
    "ooooooooo nnnnnnn eeeeee",
    "eeeeeeeeeeeeeeeeeeeeeeee     eeee",
    "http://harbour.example/ferry?turn=2&early=no#top",
]
