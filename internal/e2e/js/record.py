"""The same agent as record.mjs, on the official libraries for Python."""

import subprocess
import sys
import time

library, what, question = sys.argv[1:4]


def between() -> None:
    if what == "crash":
        raise RuntimeError("the tool is broken")
    if what == "wait":
        print("waits", file=sys.stderr, flush=True)
        time.sleep(60)


def ask_anthropic() -> str:
    import anthropic

    client = anthropic.Anthropic()
    messages: list = [{"role": "user", "content": question}]
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    while True:
        with client.messages.stream(model="m", max_tokens=100, messages=messages, tools=tools) as stream:
            message = stream.get_final_message()
        if message.stop_reason != "tool_use":
            return "".join(getattr(b, "text", "") for b in message.content)
        between()
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": "rain"} for b in message.content if b.type == "tool_use"]
        messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


def ask_openai() -> str:
    import openai

    client = openai.OpenAI()
    messages: list = [{"role": "user", "content": question}]
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    while True:
        with client.chat.completions.stream(model="m", messages=messages, tools=tools) as stream:
            choice = stream.get_final_completion().choices[0]
        if choice.finish_reason != "tool_calls":
            return choice.message.content
        between()
        calls = choice.message.tool_calls
        messages += [
            {"role": "assistant", "tool_calls": [c.model_dump(include={"id", "type", "function"}) for c in calls]},
            *({"role": "tool", "tool_call_id": c.id, "content": "rain"} for c in calls),
        ]


if what == "child":
    sys.exit(subprocess.run([sys.executable, sys.argv[0], library, "loop", question]).returncode)
print({"anthropic": ask_anthropic, "openai": ask_openai}[library](), flush=True)
