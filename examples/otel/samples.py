"""Instrumented programs whose traces are sent to an edge, beside what the proxy records of the same calls.

Usage: samples.py AGENTSTREAM|EDGE [SAMPLE...]

AGENTSTREAM is the program: an edge and a proxy are started, and each sample calls the model through the proxy. What its
trace says is compared with what the proxy says: messages, calls and their results, and usage. EDGE is the address of an
edge, http://127.0.0.1:8080; then the trace is compared with what is written here. Each sample is a process of its own,
because instrumentations patch libraries. The model is a server in this process that answers what is written here.
"""

import http.server
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
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
        if body.get("stream"):
            return self.stream(answer)
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, answer):
        """Sends a chat completion in chunks."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        choice, usage = answer["choices"][0], answer.pop("usage")
        delta = choice.pop("message")
        for i, call in enumerate(delta.get("tool_calls", [])):
            call["index"] = i
        finish = choice.pop("finish_reason")
        chunks = [[{**choice, "delta": delta, "finish_reason": None}],
                  [{**choice, "delta": {}, "finish_reason": finish}], []]
        for i, choices in enumerate(chunks):
            chunk = {**answer, "object": "chat.completion.chunk", "choices": choices}
            if i == 2:
                chunk["usage"] = usage
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")


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


def agents_talk():
    import agents
    import openai
    client = openai.AsyncOpenAI(base_url=os.environ["MODEL"] + "/v1", api_key="none")
    model = agents.OpenAIChatCompletionsModel("gpt-4o-mini", client)
    agent = agents.Agent("helper", instructions="Be brief.", model=model, tools=[agents.function_tool(weather)])
    first = agents.Runner.run_sync(agent, QUESTION)
    agents.Runner.run_sync(agent, first.to_input_list() + [{"role": "user", "content": THANKS}])


def strands_talk():
    import strands
    from strands.models.openai import OpenAIModel
    model = OpenAIModel(client_args={"base_url": os.environ["MODEL"] + "/v1", "api_key": "none"}, model_id="gpt-4o-mini")
    agent = strands.Agent(model=model, tools=[strands.tool(weather)], system_prompt="Be brief.", callback_handler=None)
    agent(QUESTION)
    agent(THANKS)


INSTRUMENTORS = {
    "openai-v2": ("opentelemetry.instrumentation.openai_v2", "OpenAIInstrumentor", openai_talk),
    "openai-v2-logs": ("opentelemetry.instrumentation.openai_v2", "OpenAIInstrumentor", openai_talk),
    "openllmetry-openai": ("opentelemetry.instrumentation.openai", "OpenAIInstrumentor", openai_talk),
    "openllmetry-anthropic": ("opentelemetry.instrumentation.anthropic", "AnthropicInstrumentor", anthropic_talk),
    "openllmetry-langchain": ("opentelemetry.instrumentation.langchain", "LangchainInstrumentor", langchain_talk),
    "openinference-openai": ("openinference.instrumentation.openai", "OpenAIInstrumentor", openai_talk),
    "openinference-langchain": ("openinference.instrumentation.langchain", "LangChainInstrumentor", langchain_talk),
    "openinference-openai-agents": ("openinference.instrumentation.openai_agents", "OpenAIAgentsInstrumentor",
                                    agents_talk),
}
ON_NODE = ["otel-js-openai", "ai-sdk"]
SAMPLES = [*INSTRUMENTORS, "pydantic-ai", "strands", *ON_NODE]
LATEST = "gen_ai_latest_experimental"


def instrument(name):
    """Switches an instrumentation on, and returns the program to run."""
    if name == "pydantic-ai":
        from pydantic_ai import Agent
        Agent.instrument_all()
        return pydantic_talk
    if name == "strands":  # it writes spans by itself
        return strands_talk
    if name not in INSTRUMENTORS:
        raise SystemExit(f"no sample {name}")
    module, instrumentor, talk = INSTRUMENTORS[name]
    getattr(importlib.import_module(module), instrumentor)().instrument()
    return talk


def run(edge, name):
    """Runs a sample in this process and prints the id of its trace."""
    from opentelemetry import _logs, trace
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=edge + "/v1/traces")))
    trace.set_tracer_provider(provider)
    records = LoggerProvider()
    records.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=edge + "/v1/logs")))
    _logs.set_logger_provider(records)
    talk = instrument(name)
    with trace.get_tracer("samples").start_as_current_span("sample") as span:
        talk()
    records.shutdown()
    provider.shutdown()
    print(f"{span.get_span_context().trace_id:032x}")


def events(edge, run_id, is_over):
    """The events of a run, when it is over."""
    for _ in range(120):
        try:
            with urllib.request.urlopen(f"{edge}/v1/agent/runs/{run_id}/replay.jsonl") as r:
                all_events = [json.loads(line) for line in r]
        except urllib.error.HTTPError:
            all_events = []
        if is_over(all_events):
            return all_events
        time.sleep(0.25)
    raise SystemExit(f"{run_id} is not over")


def is_done(all_events):
    return any(e["type"] == "run.lifecycle" and e["payload"]["state"] == "done" and not e["child_id"]
               for e in all_events)


def is_recorded(all_events):
    return sum(e["type"] == "model.end" for e in all_events) == len(USAGE)


def text_of(content):
    return "".join(b.get("text", "") for b in content if b.get("type") == "text")


def read(all_events):
    """What a run says: messages, usage, calls and results, each with its number."""
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
            u = p["usage"]  # the proxy has the words of the provider
            usage.append((u.get("input_tokens", u.get("prompt_tokens")),
                          u.get("output_tokens", u.get("completion_tokens"))))
    return [(kind, i, one) for kind, of in (("message", said), ("usage", usage), ("call", calls), ("result", results))
            for i, one in enumerate(of)]


SCRIPT = [("message", i, s) for i, s in enumerate(SAYS)] + [("usage", i, u) for i, u in enumerate(USAGE)]
SCRIPT += [("call", 0, ("call_1", "weather", CALL)), ("result", 0, ("call_1", RESULT))]


def start(work, name, *args):
    """Starts a process of agentstream, and returns it with its address."""
    path = os.path.join(work, name)
    with open(path, "w") as log:
        process = subprocess.Popen(args, stdout=log, stderr=log)
    for _ in range(200):
        with open(path) as log:
            found = re.search(r'listen(?:ing)?[= "]+(?:http://)?(127\.0\.0\.1:\d+)', log.read())
        if found:
            return process, "http://" + found[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    process.terminate()
    with open(path) as log:
        raise SystemExit(log.read())


def try_one(edge, model, name, recorded):
    """Runs a sample and prints a line of the table; returns whether the two agree."""
    env = dict(os.environ, MODEL=model, OTEL_SEMCONV_STABILITY_OPT_IN=LATEST,
               OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY", AWS_EC2_METADATA_DISABLED="true")
    if name == "openai-v2-logs":
        env["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "EVENT_ONLY"
    program = [sys.executable, __file__, "--run"]
    if name in ON_NODE:
        program = ["node", os.path.join(os.path.dirname(os.path.abspath(__file__)), "samples.mjs")]
        env.pop("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
    done = subprocess.run([*program, edge, name], env=env, capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: {done.stderr[-800:]}")
        return False
    want = read(events(edge, recorded, is_recorded)) if recorded else SCRIPT
    have = read(events(edge, "otel_" + done.stdout.split()[-1], is_done))
    columns = []
    for kind in ("message", "call", "result", "usage"):
        of = [w for w in want if w[0] == kind]
        columns.append(f"{sum(w in have for w in of)} of {len(of)}")
    missing, more = [w for w in want if w not in have], [h for h in have if h not in want]
    share = (len(want) - len(missing)) / max(len(want) + len(more), 1)
    print(f"{name:28}" + "".join(f"{c:>10}" for c in columns) + f"{share:9.0%}", flush=True)
    for what, list_of in (("missing", missing), ("more", more)):
        for one in list_of:
            print(f"  {what}: {one}")
    if recorded and want != SCRIPT:
        print(f"  the proxy says {want}")
    return share >= 0.95


def main():
    if sys.argv[1] == "--run":
        return run(sys.argv[2], sys.argv[3])
    edge, names = sys.argv[1], sys.argv[2:] or SAMPLES
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    at, proxy, started = f"http://127.0.0.1:{model.server_port}", "", []
    with tempfile.TemporaryDirectory() as work:
        try:
            if not edge.startswith("http"):
                program = edge
                process, edge = start(work, "dev", program, "dev", "--no-demo", "--listen=127.0.0.1:0",
                                      "--admin-listen=off", "--otlp-settle=1s", "--data", os.path.join(work, "data"))
                started.append(process)
                process, proxy = start(work, "proxy", program, "proxy", "--edge", edge, "--listen=127.0.0.1:0",
                                       "--admin-listen=off", "--upstream=model=" + at)
                started.append(process)
            print(f"{'':28}{'messages':>10}{'calls':>10}{'results':>10}{'usage':>10}{'equal':>9}")
            good = [try_one(edge, f"{proxy}/run/{name}" if proxy else at, name, name if proxy else "")
                    for name in names]
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait()
    return not all(good)


if __name__ == "__main__":
    sys.exit(main())
