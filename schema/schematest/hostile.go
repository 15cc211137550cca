package schematest

import (
	"strings"

	"agentstream/schema"
)

// unicodeText cuts text where a careless client breaks it: within flags, families and accents, and
// with directions and planes mixed.
func unicodeText(s *script) {
	s.state(schema.StateRunning, "")
	text := "Grüße, 你好, שלום, नमस्ते, 👩‍👩‍👧‍👦, 🇩🇪🇧🇷, e\u0301 is not é, \u200bzero\u200dwidth\ufeff, \U0001F600\U00010348, \u202eright to left\u202c, ﷽, \ufffd."
	s.message("msg_1", "end_turn", smallUsage,
		block{kind: "reasoning", text: "Ünïcödé 思考 …", piece: 1},
		block{kind: "text", text: text, piece: 1},
		block{kind: "tool_use", call: "call_1", tool: "grep", text: `{"pattern":"[äöü]+","päth":"/tmp/ß"}`, piece: 2})
	s.add(schema.TypeToolEnd, "call_id", "call_1", "ok", true, "output", text, "duration_ms", 0.25)
	s.state(schema.StateDone, "fertig – 完了")
}

// maxNesting is the nesting that schema allows within a payload: 128 with the envelope and the
// payload's own braces.
const maxNesting = 126

// HostilePayloads are payloads of text.delta that are valid and must come out as they went in, byte
// for byte. None holds a line feed.
func HostilePayloads() []string {
	return append(shallowPayloads(),
		`{"text":"deep","deep":`+strings.Repeat("[", maxNesting)+strings.Repeat("]", maxNesting)+`}`,
		`{"text":"deep","deep":`+strings.Repeat(`{"a":`, maxNesting-1)+`{}`+strings.Repeat("}", maxNesting-1)+`}`,
		`{"text":"`+strings.Repeat("long äöü 😀 \\u0000 ", 6000)+`"}`,
	)
}

// shallowPayloads are those that may also stand within another payload.
func shallowPayloads() []string {
	return []string{
		`{"text":"nul \u0000 and \u001f, esc \u001b[31m"}`,
		`{"text":"lone \ud800 high"}`,
		`{"text":"lone \udc00 low, swapped \udc00\ud800"}`,
		`{"text":"pair \ud83d\ude00 and raw 😀"}`,
		`{"text":"first wins nowhere","text":"last wins"}`,
		`{"te\u0078t":"escaped name"}`,
		`{"text":"numbers","n":[1e400,-0.0,1.10,-0,1E+2,0.1000,123456789012345678901234567890,9007199254740993]}`,
		`{"zz":1,"text":"odd order","aa":2,"a.b":3,"":4}`,
		`{"text":"slashes \/ \\ \" \/\/"}`,
		"{\"text\":\"separators \u2028 \u2029 raw, \\u2028 \\u2029 escaped, \u0085\"}",
		`{"text":"\r\n\r\ndata: injected\r\n\r\nevent: done\n\n"}`,
		`{"text":"</script><!--&amp;\u003c"}`,
		"{ \"text\" :\t\"white  space\" ,  \"k\" : [ 1 , 2 ,{ } , [ ] ] }",
		`{"text":"names","seq":99,"id":"evt_fake","run_id":"run_other","payload":{"text":"inner"},"type":"run.lifecycle"}`,
		`{"text":"text in a name","x":"\"text\":\"no\"","y":{"text":"no"}}`,
		`{"text":"","index":0}`,
	}
}

// hostile is a run whose every payload is hard to carry. Its framing is correct.
func hostile(s *script) {
	s.raw(schema.TypeRunLifecycle, "{ \"reason\" : null ,\t\"state\" : \"running\" }")
	s.messageStart("msg \"1\"\r\n\u2028\x00")
	s.add(schema.TypeBlockStart, "index", 0, "kind", "text")
	for _, p := range HostilePayloads() {
		s.raw(schema.TypeTextDelta, p)
	}
	s.extras()
	s.add(schema.TypeBlockEnd, "index", 0, "complete", true)
	s.hostileTool()
	s.raw(schema.TypeMessageEnd, `{"usage":{"output_tokens":1.10,"input_tokens":12345678901234567890},"stop_reason":null,`+
		`"message_id":"msg \"1\"\r\n\u2028\u0000","content":[{"type":"text","text":"\ud800\u0000","text":"\/"}],"stop_sequence":"\n"}`)
	s.raw(schema.TypeToolEnd, `{"output":[null,true,1e400,{"":{"":""}}],"ok":true,"call_id":"call\/\u0000*>.","duration_ms":0.0}`)
	s.raw("custom.anything-goes.at_all", `{"data":"\n\nid: 7\n\n","nested":{"a":1,"a":2}}`)
	s.raw("custom.x", "{}")
	s.raw(schema.TypeDataDelta, `{"media_type":"audio\/pcm;rate=24000","data":"AAECAw==","name":"..\/..\/etc"}`)
	s.raw(schema.TypeRunLifecycle, `{"state":"done","reason":"\u0000\r\n\ud800","extra":-0.0}`)
}

// extras has envelope fields that this version does not know, with hostile values and names.
func (s *script) extras() {
	for i, extra := range []string{
		`"x_vendor":{"a":1,"a":2,"n":1e400}`,
		`"x-trace":"00-abc","x_null":null,"x_list":[1,2.50,-0.0]`,
		`"naïve \"name\"":"\ud800\u0000","Seq":7,"PAYLOAD":"not this one"`,
	} {
		s.add(schema.TypeTextDelta, "text", "extra", "index", 0)
		e := &s.events[len(s.events)-1]
		e.Extra = raw(extra)
		e.TurnID = []string{"turn <&> \u2028", "", "turn\t\"2\""}[i]
		e.Cause = []string{"", "evt_cause", "\\"}[i]
		e.Actor = []string{"user", "", "ünbekannt"}[i]
	}
}

func (s *script) hostileTool() {
	const call = `"call_id":"call\/\u0000*>."`
	s.raw(schema.TypeBlockStart, `{"index":1,"kind":"tool_use",`+call+`,"tool":"rm -rf \/"}`)
	s.raw(schema.TypeToolInputDelta, `{`+call+`,"text":"{\"big\":1234567890","index":1}`)
	s.raw(schema.TypeToolInputDelta, `{`+call+`,"text":"1234567890,\"f\":1.10}","index":1}`)
	s.raw(schema.TypeBlockEnd, `{"index":1,`+call+`,"complete":true,"input":{"big":12345678901234567890,"f":1.10}}`)
	s.raw(schema.TypeToolStart, `{"input":{"big":12345678901234567890,"f":1.10},`+call+`,"tool":"rm -rf \/"}`)
	s.raw(schema.TypeToolOutputDelta, `{`+call+`,"text":"\u001b]0;title\u0007\b\f\/"}`)
}
