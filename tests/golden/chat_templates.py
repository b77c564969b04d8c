"""Chat templates written for the tests, in formats of families whose own are under other licences. Owns the texts."""

LLAMA3_PLAIN = """{% set turns = messages %}{% for turn in turns %}
{%- set text = '<|start_header_id|>' + turn['role'] + '<|end_header_id|>\n\n' + turn['content'] | trim + '<|eot_id|>' %}
{%- if loop.first %}{% set text = bos_token + text %}{% endif %}
{{- text }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
"""

LLAMA3_TOOLS = """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- macro text_of(content) %}
    {%- if content is string %}{{ content | trim }}
    {%- else %}{% for part in content %}{{ part['text'] | trim }}{% endfor %}{% endif %}
{%- endmacro %}
{%- set state = namespace(system='', calls=0) %}
{%- if messages[0].role == 'system' %}
    {%- set state.system = text_of(messages[0].content) %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\nToday: " ~ date_string ~ "\n" }}
{%- if tools %}
    {{- "Answer with a function call in JSON where one helps.\n" }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\n" }}
    {%- endfor %}
{%- endif %}
{{- state.system ~ "<|eot_id|>" }}
{%- for turn in turns %}
    {%- if turn.role == 'comment' %}{% continue %}{% endif %}
    {%- if turn.tool_calls %}
        {%- if turn.tool_calls | length != 1 %}{{ raise_exception('One tool call a turn') }}{% endif %}
        {%- set call = turn.tool_calls[0].function %}
        {%- set state.calls = state.calls + 1 %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {%- generation %}
        {{- '{"name": "' ~ call.name ~ '", "parameters": ' ~ call.arguments | tojson ~ '}' }}
        {{- '<|eot_id|>' }}
        {%- endgeneration %}
    {%- elif turn.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' ~ turn.content | tojson ~ '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' ~ turn.role ~ '<|end_header_id|>\n\n' ~ text_of(turn.content) ~ '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

# Turns of Gemma: a system message goes before the first user's text, roles must alternate.
GEMMA = """{{ bos_token }}{% set before = "" %}{% set turns = messages %}
{%- if messages[0]["role"] == "system" %}
    {%- if messages[0]["content"] is string %}{% set before = messages[0]["content"] + "\n\n" %}
    {%- else %}{% set before = messages[0]["content"][0]["text"] + "\n\n" %}{% endif %}
    {%- set turns = messages[1:] %}
{%- endif %}
{%- for turn in turns -%}
    {%- if (turn["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("User and assistant must take turns") }}
    {%- endif -%}
    {%- set role = "model" if turn["role"] == "assistant" else turn["role"] %}
    {{- "<start_of_turn>" + role + "\n" + (before if loop.first else "") }}
    {%- if turn["content"] is string -%}
        {{ turn["content"] | trim }}
    {%- elif turn["content"] is iterable -%}
        {%- for part in turn["content"] -%}
            {%- if part["type"] == "image" -%}{{ "<start_of_image>" }}
            {%- elif part["type"] == "text" -%}{{ part["text"] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{ raise_exception("No content") }}
    {%- endif -%}
    {{ "<end_of_turn>\n" }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<start_of_turn>model\n" }}{% endif -%}
"""

# Instructions of Mistral: the system message with the last user's, tools before it, calls as JSON with ids.
MISTRAL = """{%- set turns = messages | rejectattr("role", "equalto", "system") | list %}
{%- set system = messages | selectattr("role", "equalto", "system") | map(attribute="content") | first | default("") %}
{%- set users = turns | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for turn in turns %}
    {%- if turn.role == "user" %}
        {%- set is_last = turn == users[-1] %}
        {%- if tools is not none and is_last %}
            {{- "[AVAILABLE_TOOLS] " ~ tools | tojson ~ "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " ~ (system ~ "\n\n" if system and is_last else "") }}
        {%- if turn.content is string %}{{ turn.content }}
        {%- else %}{{ turn.content | map(attribute="text") | join("\n") }}{% endif %}{{ "[/INST]" }}
    {%- elif turn.tool_calls is defined and turn.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in turn.tool_calls %}
            {%- set out = call.function | tojson %}{{ out[:-1] ~ ', "id": "' ~ "%09d" | format(loop.index) ~ '"}' }}
            {{- "" if loop.last else ", " }}
        {%- endfor %}{{ "]" ~ eos_token }}
    {%- elif turn.role in ("tool", "tool_results") %}
        {%- set result = {"content": turn.content | string, "call_id": "000000001"} %}
        {{- "[TOOL_RESULTS] " ~ result | tojson ~ "[/TOOL_RESULTS]" }}
    {%- elif turn.role == "assistant" %}{{ " " ~ turn.content | trim ~ eos_token }}
    {%- else %}{{ raise_exception("Unknown role " ~ turn.role) }}
    {%- endif %}
{%- endfor %}
"""

# Turns of Command-R, with filters and tests seldom used elsewhere.
COMMAND_R = """{{ bos_token }}{% if tools %}
{%- set names = tools | map(attribute="function.name") | unique | sort | join(", ") %}
{{- "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Tools: " ~ names | upper ~ "\n" }}
{%- for tool in tools %}{% for key, value in tool.function.parameters.properties | dictsort %}
{{- "%-10s|%s\n" | format(key, value.type | default("any", true) | title) }}{% endfor %}{% endfor %}
{{- "<|END_OF_TURN_TOKEN|>" }}{% endif %}
{%- for group in messages | groupby("role") %}{{ group.grouper ~ "=" ~ group.list | length ~ ";" }}{% endfor %}
{%- for message in messages %}
{%- set parts = [message.content] if message.content is string else message.content | default([], true) %}
{%- set names = {"user": "USER", "assistant": "CHATBOT", "system": "SYSTEM"} %}
{{- "<|START_OF_TURN_TOKEN|><|" ~ names.get(message.role, "TOOL") ~ "_TOKEN|>" }}
{%- for part in parts %}{{ part.text.strip() if part is mapping else part.strip() }}{% endfor %}
{%- for call in message.tool_calls or [] %}{{ "Action: " ~ call.function.name ~ "\n" }}
{{- call.function.arguments | tojson(indent=2) | indent(2, first=True) }}
{%- for key, value in call.function.arguments.items() if value is not none %}
{{- loop.cycle("+", "-") ~ key }}{% endfor %}
{%- endfor %}{{ "<|END_OF_TURN_TOKEN|>" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>" }}{% endif %}
"""

_LLAMA3 = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
WRITTEN = {
    "llama3-plain": (LLAMA3_PLAIN, _LLAMA3),
    "llama3-tools": (LLAMA3_TOOLS, _LLAMA3),
    "gemma": (GEMMA, {"bos_token": "<bos>", "eos_token": "<eos>"}),
    "mistral": (MISTRAL, {"bos_token": "<s>", "eos_token": "</s>"}),
    "command-r": (COMMAND_R, {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>"}),
}
