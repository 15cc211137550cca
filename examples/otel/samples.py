"""Instrumented programs whose traces are sent to an edge, and what their runs say beside what was scripted.

Usage: samples.py EDGE SAMPLE...

EDGE is the address of an edge, http://127.0.0.1:8080. Each sample is a process of its own, because instrumentations
patch libraries. The model is a server in this process that answers what is written here.
"""

import http.server
import importlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request

QUESTION, CALL, RESULT, ANSWER = "Weather in Oslo?", {"city": "Oslo"}, "rain, 4 degrees", "It rains in Oslo."
THANKS, BYE = "Thanks!", "You are welcome."
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
USAGE = [(11, 5), (23, 7), (31, 3)]
SAYS = [("user", QUESTION), ("assistant", ""), ("assistant", ANSWER), ("user", THANKS), ("assistant", BYE)]


class Model(http.server.BaseHTTPRequestHandler):
    """Answers chat completions and messages by how many turns of the assistant the request has."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        turn = sum(m.get("role") == "assistant" for m in body["messages"])
        text = ["", ANSWER, BYE][turn]
        took, gave = USAGE[turn]
        if self.path.endswith("/messages"):
            call = {"type": "tool_use", "id": "call_1", "name": "weather", "input": CALL}
            block = {"type": "text", "text": text} if turn else call
            answer = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": body["model"],
                      "content": [block], "stop_reason": "end_turn" if turn else "tool_use", "stop_sequence": None,
                      "usage": {"input_tokens": took, "output_tokens": gave}}
        else:
            message = {"role": "assistant", "content": text or None}
            if not turn:
                call = {"name": "weather", "arguments": json.dumps(CALL)}
                message["tool_calls"] = [{"id": "call_1", "type": "function", "function": call}]
            answer = {"id": f"chatcmpl-{turn}", "object": "chat.completion", "created": 1, "model": body["model"],
                      "choices": [{"index": 0, "message": message, "finish_reason": "stop" if turn else "tool_calls"}],
                      "usage": {"prompt_tokens": took, "completion_tokens": gave, "total_tokens": took + gave}}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def weather(city: str) -> str:
    """The weather in a city."""
    return RESULT


def openai_talk():
    import openai
    client = openai.OpenAI(base_url=os.environ["MODEL"] + "/v1", api_key="none")
    tool = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]

    def ask():
        m = client.chat.completions.create(model="gpt-4o-mini", messages=talk, tools=[tool]).choices[0].message
        talk.append(m.model_dump(exclude_none=True))
        return m

    for call in ask().tool_calls:
        result = weather(**json.loads(call.function.arguments))
        talk.append({"role": "tool", "tool_call_id": call.id, "content": result})
    ask()
    talk.append({"role": "user", "content": THANKS})
    ask()


def anthropic_talk():
    import anthropic
    client = anthropic.Anthropic(base_url=os.environ["MODEL"], api_key="none")
    tool = {"name": "weather", "input_schema": CITY}
    talk = [{"role": "user", "content": QUESTION}]

    def ask():
        m = client.messages.create(model="claude-x", max_tokens=99, system="Be brief.", messages=talk, tools=[tool])
        talk.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in m.content]})
        return m

    results = [{"type": "tool_result", "tool_use_id": b.id, "content": weather(**b.input)} for b in ask().content]
    talk.append({"role": "user", "content": results})
    ask()
    talk.append({"role": "user", "content": THANKS})
    ask()


def pydantic_talk():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=os.environ["MODEL"] + "/v1", api_key="none")
    model = OpenAIChatModel("gpt-4o-mini", provider=provider)
    agent = Agent(model, system_prompt="Be brief.", tools=[weather])
    first = agent.run_sync(QUESTION)
    agent.run_sync(THANKS, message_history=first.all_messages())


def langchain_talk():
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(model="gpt-4o-mini", base_url=os.environ["MODEL"] + "/v1", api_key="none")
    agent = create_agent(model, tools=[weather], system_prompt="Be brief.")
    state = agent.invoke({"messages": [{"role": "user", "content": QUESTION}]})
    agent.invoke({"messages": state["messages"] + [{"role": "user", "content": THANKS}]})


INSTRUMENTORS = {
    "openai-v2": ("opentelemetry.instrumentation.openai_v2", "OpenAIInstrumentor", openai_talk),
    "openllmetry-openai": ("opentelemetry.instrumentation.openai", "OpenAIInstrumentor", openai_talk),
    "openllmetry-anthropic": ("opentelemetry.instrumentation.anthropic", "AnthropicInstrumentor", anthropic_talk),
    "openllmetry-langchain": ("opentelemetry.instrumentation.langchain", "LangchainInstrumentor", langchain_talk),
    "openinference-openai": ("openinference.instrumentation.openai", "OpenAIInstrumentor", openai_talk),
    "openinference-langchain": ("openinference.instrumentation.langchain", "LangChainInstrumentor", langchain_talk),
}


def instrument(name):
    """Switches an instrumentation on, and returns the program to run."""
    if name == "pydantic-ai":
        from pydantic_ai import Agent
        Agent.instrument_all()
        return pydantic_talk
    if name not in INSTRUMENTORS:
        raise SystemExit(f"no sample {name}")
    module, instrumentor, talk = INSTRUMENTORS[name]
    getattr(importlib.import_module(module), instrumentor)().instrument()
    return talk


def run(edge, name):
    """Runs a sample in this process and prints the id of its trace."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=edge + "/v1/traces")))
    trace.set_tracer_provider(provider)
    talk = instrument(name)
    with trace.get_tracer("samples").start_as_current_span("sample") as span:
        talk()
    provider.shutdown()
    print(f"{span.get_span_context().trace_id:032x}")


def events(edge, run_id):
    """The events of a run, when it is over."""
    for _ in range(120):
        with urllib.request.urlopen(f"{edge}/v1/agent/runs/{run_id}/replay.jsonl") as r:
            all_events = [json.loads(line) for line in r]
        if any(e["type"] == "run.lifecycle" and e["payload"]["state"] == "done" and not e["child_id"]
               for e in all_events):
            return all_events
        time.sleep(0.5)
    raise SystemExit(f"{run_id} is not over")


def text_of(content):
    return "".join(b.get("text", "") for b in content if b.get("type") == "text")


def compare(all_events):
    """What was scripted and is in the run, and how much was scripted."""
    roles, said, usage, calls, results = {}, [], [], [], []
    for e in all_events:
        p = e["payload"]
        if e["type"] == "message.start":
            roles[p["message_id"]] = p["role"]
        elif e["type"] == "message.end":
            said.append((roles[p["message_id"]], text_of(p.get("content", []))))
        elif e["type"] == "tool.start":
            calls.append((p["call_id"], p["tool"], p["input"]))
        elif e["type"] == "tool.end":
            results.append((p["call_id"], p.get("output")))
        if e["type"] in ("message.end", "model.end") and "usage" in p:
            usage.append((p["usage"].get("input_tokens"), p["usage"].get("output_tokens")))
    want = [("message", i, s) for i, s in enumerate(SAYS)] + [("usage", i, u) for i, u in enumerate(USAGE)]
    want += [("call", 0, ("call_1", "weather", CALL)), ("result", 0, ("call_1", RESULT))]
    have = [("message", i, s) for i, s in enumerate(said)] + [("usage", i, u) for i, u in enumerate(usage)]
    have += [("call", i, c) for i, c in enumerate(calls)] + [("result", i, r) for i, r in enumerate(results)]
    missing, more = [w for w in want if w not in have], [h for h in have if h not in want]
    return len(want) - len(missing), len(want), missing, more


def main():
    if sys.argv[1] == "--run":
        return run(sys.argv[2], sys.argv[3])
    edge, names = sys.argv[1], sys.argv[2:]
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    env = dict(os.environ, MODEL=f"http://127.0.0.1:{model.server_port}",
               OTEL_SEMCONV_STABILITY_OPT_IN="gen_ai_latest_experimental",
               OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY")
    bad = 0
    for name in names:
        done = subprocess.run([sys.executable, __file__, "--run", edge, name], env=env, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: {done.stderr[-800:]}")
            bad += 1
            continue
        equal, of, missing, more = compare(events(edge, "otel_" + done.stdout.split()[-1]))
        print(f"{name}: {equal} of {of}")
        for what, list_of in (("missing", missing), ("more", more)):
            for one in list_of:
                print(f"  {what}: {one}")
        bad += equal != of or bool(more)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
