package sqlite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// frameTables is what is kept of messages.
const frameTables = `select json_array(koder_user_id, run_id, seq, lane, day, reported, input_tokens, output_tokens, cache_read_tokens,
	cache_write_tokens, cost, typeof(input_tokens), typeof(output_tokens), typeof(cache_read_tokens), typeof(cache_write_tokens))
	from agent_run_usage where $1 = '' union all
	select json_array(koder_user_id, run_id, lane, seq, model) from agent_run_models order by 1`

// TestFramesAreKeptAlike: what is kept of a message is what the triggers keep of it, whatever it says.
func TestFramesAreKeptAlike(t *testing.T) {
	s := temp(t)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	read := 0
	put := func(typ, payload string) {
		p := w.Pack("", persistertest.Event(typ, payload))
		if _, _, ok := persister.ReadFrame(&chunks(t, p)[0].Rows[0]); ok {
			read++
		}
		persistertest.Put(t, s, p)
	}
	numbers := []string{`0`, `7`, `-3`, `1.5`, `1e3`, `"8"`, `null`, `true`, `[1]`, `{}`, `9007199254740993`,
		`92233720368547758070`, `-0`}
	for _, name := range []string{"input_tokens", "prompt_tokens", "promptTokenCount", "output_tokens",
		"completion_tokens", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount",
		"cache_read_input_tokens", "cache_creation_input_tokens", "cost", "cost_usd", "other"} {
		for _, n := range numbers {
			put(schema.TypeMessageEnd, fmt.Sprintf(`{"message_id":"m","usage":{%q:%s}}`, name, n))
			put(schema.TypeMessageEnd, fmt.Sprintf(`{"usage":{"input_tokens":100,%q:%s,"output_tokens":3}}`, name, n))
			put(schema.TypeMessageEnd, fmt.Sprintf(`{"usage":{"prompt_tokens":100,"cachedContentTokenCount":9,%q:%s}}`, name, n))
		}
	}
	for _, payload := range []string{`{}`, `{"usage":null}`, `{"usage":[]}`, `{"usage":7}`, `{"usage":{}}`,
		`{"usage":{"input_tokens":1},"usage":{"input_tokens":2}}`, `{"usage":{"input_tokens":1,"input_tokens":2}}`,
		`{"\u0075sage":{"input_tokens":1}}`, `{"usage":{"input_tokens":1,"prompt_tokens_details":{"cached_tokens":1}}}`,
		`{"content":[{"payload":{"usage":1}}],"usage":{"input_tokens":4}}`} {
		put(schema.TypeMessageEnd, payload)
	}
	for _, model := range []string{`"x"`, `""`, `null`, `7`, `"é"`, `"a\nb"`, `"\u0000"`, `"\ud800"`, `{"a":1}`, `true`,
		`"` + strings.Repeat("é", 150) + `"`, `"` + strings.Repeat("é", 250) + `"`, `"` + strings.Repeat("x", 300) + `"`} {
		put(schema.TypeMessageStart, `{"message_id":"m","model":`+model+`}`)
		put(schema.TypeMessageStart, `{"model":"first","model":`+model+`}`)
	}
	if read < 200 {
		t.Errorf("only %d are read without the triggers", read)
	}
	ask := s.firstColumn(t)
	kept := ask(frameTables, "")
	for _, text := range []string{`delete from agent_run_usage`, `delete from agent_run_models`,
		`insert into agent_run_frames select koder_user_id, run_id, seq, child_id, type, ts, line from agent_run_events
			where type in ('message.start', 'message.end')`} {
		if _, err := s.write.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	if want := ask(frameTables, ""); !slices.Equal(kept, want) {
		for i := range min(len(kept), len(want)) {
			if kept[i] != want[i] {
				t.Errorf("kept is %s, by the triggers %s", kept[i], want[i])
			}
		}
		t.Errorf("%d rows are kept, %d by the triggers", len(kept), len(want))
	}
}

// TestPlainTimes: the day of a plain time is the one that SQLite makes of it, up to the last second of a day.
func TestPlainTimes(t *testing.T) {
	s := temp(t)
	plain := 0
	for _, day := range []string{"0000-12-31", "0001-01-01", "1999-12-31", "2026-02-28", "9998-12-31", "9999-12-31"} {
		for _, clock := range []string{"00:00:00Z", "12:34:56.789Z", "23:58:59.9999Z", "23:59:58.999999999Z",
			"23:59:59Z", "23:59:59.9995Z", "23:59:59.999999999Z", "23:30:00-05:00"} {
			ts, err := time.Parse(time.RFC3339Nano, day+"T"+clock)
			if err != nil {
				t.Fatal(err)
			}
			if !isPlainTime(ts) {
				continue
			}
			plain++
			got := s.firstColumn(t)(`select date($1)`, ts.Format(time.RFC3339Nano))
			if got[0] != ts.Format(time.DateOnly) {
				t.Errorf("the day of %s is %s", ts, got)
			}
		}
	}
	if plain != 4*4 {
		t.Errorf("%d times are plain", plain)
	}
}
