"""Small chat templates in the forms of model families: as long as a form needs to show."""

GLM = """
{{- '[gMASK]<sop>' }}
{%- for tool in tools or [] %}{{- '<|system|>\\n' + tool | tojson }}{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {%- if messages[loop.index0 - 1].role != 'tool' %}{{- '<|observation|>' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
    {%- elif m.role == 'assistant' %}
        {{- '<|assistant|>\\n<think></think>' }}
        {%- if m.content %}{{- '\\n' + m.content }}{%- endif %}
        {%- for call in m.tool_calls or [] %}
            {{- '\\n<tool_call>' + call.function.name + '\\n' }}
            {%- for key, value in call.function.arguments.items() %}
                {{- '<arg_key>' + key + '</arg_key>\\n<arg_value>' + (value if value is string else value | tojson) + '</arg_value>\\n' }}
            {%- endfor %}
            {{- '</tool_call>' }}
        {%- endfor %}
    {%- else %}
        {{- '<|' + m.role + '|>\\n' + m.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}
"""
KIMI = """
{%- for tool in tools or [] %}{{- '<|im_system|>tool_declare<|im_middle|>' + tool | tojson + '<|im_end|>' }}{%- endfor %}
{%- for m in messages %}
    {{- '<|im_' + ('system' if m.role == 'tool' else m.role) + '|>' + m.role + '<|im_middle|>' }}
    {%- if m.role == 'tool' %}{{- '## Return of ' + m.tool_call_id + '\\n' }}{%- endif %}
    {{- m.content }}
    {%- if m.tool_calls %}
        {{- '<|tool_calls_section_begin|>' }}
        {%- for call in m.tool_calls %}
            {{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' }}
            {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
            {{- '<|tool_call_end|>' }}
        {%- endfor %}
        {{- '<|tool_calls_section_end|>' }}
    {%- endif %}
    {{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_assistant|>assistant<|im_middle|>' }}{%- endif %}
"""
DEEPSEEK_V3 = """
{%- set ns = namespace(is_tool=false) %}
{{- '<｜begin▁of▁sentence｜>' }}
{%- for m in messages %}{%- if m.role == 'system' %}{{- m.content }}{%- endif %}{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '<｜User｜>' + m.content }}{%- endif %}
    {%- if m.role == 'assistant' and m.tool_calls %}
        {%- for call in m.tool_calls %}
            {{- '<｜Assistant｜><｜tool▁calls▁begin｜>' if loop.first else '\\n' }}
            {{- '<｜tool▁call▁begin｜>' + call.type + '<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' + call.function.arguments }}
            {{- '\\n```<｜tool▁call▁end｜>' }}
        {%- endfor %}
        {{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
    {%- endif %}
    {%- if m.role == 'assistant' and m.content is not none %}
        {{- ('<｜tool▁outputs▁end｜>' if ns.is_tool else '<｜Assistant｜>') + m.content + '<｜end▁of▁sentence｜>' }}
    {%- endif %}
    {%- if m.role == 'tool' %}
        {{- '\\n' if ns.is_tool else '<｜tool▁outputs▁begin｜>' }}
        {{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
    {%- endif %}
    {%- set ns.is_tool = m.role == 'tool' %}
{%- endfor %}
{%- if ns.is_tool %}{{- '<｜tool▁outputs▁end｜>' }}{%- elif add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %}
"""
DEEPSEEK_V31 = """
{%- set ns = namespace(is_asked=false) %}
{{- '<｜begin▁of▁sentence｜>' }}
{%- for m in messages %}{%- if m.role == 'system' %}{{- m.content }}{%- endif %}{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '<｜User｜>' + m.content }}{%- set ns.is_asked = true %}{%- endif %}
    {%- if m.role == 'assistant' %}
        {{- ('<｜Assistant｜></think>' if ns.is_asked else '') + (m.content or '') }}
        {%- set ns.is_asked = false %}
        {%- for call in m.tool_calls or [] %}
            {{- '<｜tool▁calls▁begin｜>' if loop.first else '' }}
            {{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments + '<｜tool▁call▁end｜>' }}
            {{- '<｜tool▁calls▁end｜>' if loop.last else '' }}
        {%- endfor %}
        {{- '<｜end▁of▁sentence｜>' }}
    {%- endif %}
    {%- if m.role == 'tool' %}{{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt and ns.is_asked %}{{- '<｜Assistant｜></think>' }}{%- endif %}
"""
DEEPSEEK_V32 = """
{%- set ns = namespace(lead='') %}
{{- '<｜begin▁of▁sentence｜>' }}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{- m.content }}{%- endif %}
    {%- if m.role == 'user' %}{{- '<｜User｜>' + m.content }}{%- set ns.lead = '<｜Assistant｜></think>' %}{%- endif %}
    {%- if m.role == 'assistant' %}
        {{- ns.lead + m.content }}
        {%- set ns.lead = '' %}
        {%- for call in m.tool_calls or [] %}
            {{- ('<｜DSML｜function_calls>' if loop.first else '') + '\n<｜DSML｜invoke name="' + call.function.name + '">\n' }}
            {%- for key, value in call.function.arguments.items() %}
                {{- '<｜DSML｜parameter name="' + key + '" string="' + ('true' if value is string else 'false') + '">' }}
                {{- (value if value is string else value | tojson) + '</｜DSML｜parameter>\n' }}
            {%- endfor %}
            {{- '</｜DSML｜invoke>' + ('\n</｜DSML｜function_calls>' if loop.last else '') }}
        {%- endfor %}
        {{- '<｜end▁of▁sentence｜>' }}
    {%- endif %}
    {%- if m.role == 'tool' %}
        {{- ('\n\n<function_results>' if messages[loop.index0 - 1].role != 'tool' else '') + '\n<result>' + m.content + '</result>' }}
        {{- '\n</function_results>\n\n' if loop.last or messages[loop.index0 + 1].role != 'tool' else '' }}
        {%- set ns.lead = '</think>' %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- ns.lead }}{%- endif %}
"""
MISTRAL_CALL_ID = """
{{- '<s>' }}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
    {%- elif m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}
    {%- elif m.role == 'assistant' %}
        {{- m.content }}
        {%- for call in m.tool_calls or [] %}
            {%- if call.id | length != 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
            {%- set said = call.function.arguments if call.function.arguments is string else call.function.arguments | tojson %}
            {{- '[TOOL_CALLS]' + call.function.name + '[CALL_ID]' + call.id + '[ARGS]' + said }}
        {%- endfor %}
        {{- '</s>' }}
    {%- else %}
        {%- if m.tool_call_id | length != 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
        {{- '[TOOL_RESULTS]' + m.tool_call_id + '[TOOL_CONTENT]' + m.content + '[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""
MISTRAL_ARGS = """
{{- '<s>' }}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
    {%- elif m.role == 'user' %}{{- '[INST]' + m.content + '[/INST]' }}
    {%- elif m.role == 'assistant' %}
        {{- m.content }}
        {%- for call in m.tool_calls or [] %}{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + call.function.arguments }}{%- endfor %}
        {{- '</s>' }}
    {%- else %}{{- '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""
MISTRAL_ARRAY = """
{{- '<s>' }}
{%- set asked = messages | selectattr('role', 'equalto', 'user') | list %}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{- '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}
    {%- elif m.role == 'user' %}
        {%- if tools and m == asked[-1] %}{{- '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{%- endif %}
        {{- '[INST]' + m.content + '[/INST]' }}
    {%- elif m.role == 'assistant' %}
        {{- m.content }}
        {%- for call in m.tool_calls or [] %}
            {%- if call.id | length < 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
            {{- '[TOOL_CALLS] [' if loop.first else ', ' }}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id[-9:] + '"}' + (']' if loop.last else '') }}
        {%- endfor %}
        {{- '</s>' }}
    {%- else %}
        {%- if m.tool_call_id | length < 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id[-9:] + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
"""
MINIMAX = """
{%- set ns = namespace(is_called=false) %}
{{- ']~!b[' }}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {%- if not ns.is_called %}{{- raise_exception('no call before a result') }}{%- endif %}
        {%- if messages[loop.index0 - 1].role != 'tool' %}{{- ']~b]tool' }}{%- endif %}
        {{- '\n<response>' + m.content + '</response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '[e~[\n' }}{%- endif %}
    {%- else %}
        {{- ']~b]' + ('ai' if m.role == 'assistant' else m.role) + '\n' + m.content }}
        {%- set ns.is_called = m.tool_calls and true %}
        {%- for call in m.tool_calls or [] %}
            {{- ('<minimax:tool_call>' if loop.first else '') + '\n<invoke name="' + call.function.name + '">\n' }}
            {%- for key, value in call.function.arguments.items() %}
                {{- '<parameter name="' + key + '">' + (value if value is string else value | tojson) + '</parameter>\n' }}
            {%- endfor %}
            {{- '</invoke>' + ('\n</minimax:tool_call>' if loop.last else '') }}
        {%- endfor %}
        {{- '[e~[\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- ']~b]ai\n' }}{%- endif %}
"""
LLAMA = """
{{- '<|begin_of_text|>' }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + ('ipython' if m.role == 'tool' else m.role) + '<|end_header_id|>\n\n' }}
    {%- if m.tool_calls %}
        {%- if m.tool_calls | length > 1 %}{{- raise_exception('one call a turn') }}{%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}' }}
    {%- else %}{{- m.content }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
"""
GPT_OSS = """
{%- set ns = namespace(name='') %}
{{- '<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>' }}
{%- for tool in tools or [] %}{{- '<|start|>developer<|message|>// ' + tool.function.description + tool | tojson + '<|end|>' }}{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'assistant' and m.tool_calls %}
        {%- if m.content and m.thinking %}{{- raise_exception('words or thoughts') }}{%- endif %}
        {%- set later = messages[loop.index:] | selectattr('role', 'equalto', 'assistant') | rejectattr('tool_calls') | list %}
        {%- if (m.content or m.thinking) and not later %}
            {{- '<|start|>assistant<|channel|>analysis<|message|>' + (m.content or m.thinking) + '<|end|>' }}
        {%- endif %}
        {%- set ns.name = m.tool_calls[0].function.name %}
        {{- '<|start|>assistant to=functions.' + ns.name + '<|channel|>commentary json<|message|>' }}
        {{- m.tool_calls[0].function.arguments | tojson + '<|call|>' }}
    {%- elif m.role == 'assistant' %}
        {%- set is_end = loop.last and not add_generation_prompt %}
        {%- if is_end and m.thinking %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if is_end else '<|end|>') }}
    {%- elif m.role == 'tool' %}
        {{- '<|start|>functions.' + ns.name + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson + '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + ('developer' if m.role == 'system' else m.role) + '<|message|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}
"""
LLAMA_4 = """
{{- '<|begin_of_text|>' }}
{%- for m in messages %}
    {{- '<|header_start|>' + ('ipython' if m.role == 'tool' else m.role) + '<|header_end|>\n\n' }}
    {{- '<|python_start|>' + m.content + '<|python_end|>' if m.tool_calls else m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- '{"name": "' + call.function.name + '", "parameters": ' + call.function.arguments | tojson + '}' }}
    {%- endfor %}
    {{- '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header_start|>assistant<|header_end|>\n\n' }}{%- endif %}
"""
PYTHONIC = """
{{- '<|begin_of_text|>' }}
{%- for m in messages %}
    {{- '<|header_start|>' + ('ipython' if m.role == 'tool' else m.role) + '<|header_end|>\n\n' + m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- ('[' if loop.first else ', ') + call.function.name + '(' }}
        {%- for key, value in call.function.arguments.items() %}
            {{- (', ' if not loop.first else '') + key + '=' + value | tojson }}
        {%- endfor %}
        {{- ')' + (']' if loop.last else '') }}
    {%- endfor %}
    {{- '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header_start|>assistant<|header_end|>\n\n' }}{%- endif %}
"""
TEMPLATES = {
    "glm-4.5": GLM,
    "glm-4.7": GLM.replace("name + '\\n'", "name").replace("</arg_key>\\n", "</arg_key>").replace("</arg_value>\\n", "</arg_value>"),
    "kimi-k2": KIMI,
    "deepseek-v3": DEEPSEEK_V3,
    "deepseek-v3.1": DEEPSEEK_V31,
    "deepseek-v3.2": DEEPSEEK_V32,
    "deepseek-v4": DEEPSEEK_V32.replace("function_calls", "tool_calls"),
    "mistral-call-id": MISTRAL_CALL_ID,
    "mistral-args": MISTRAL_ARGS,
    "mistral-v7": MISTRAL_ARRAY,
    "mistral-nemo": MISTRAL_ARRAY.replace("CALLS] [", "CALLS]["),
    "minimax-m2": MINIMAX,
    "llama-3": LLAMA,
    "gpt-oss": GPT_OSS,
    "pythonic": PYTHONIC,
    "llama-4": LLAMA_4,
}  # fmt: skip
