package main

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/internal/testkit"
	"agentstream/protocols/sample"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPage opens the page in a browser, twice.
func TestPage(t *testing.T) {
	web := httptest.NewServer(handler())
	defer web.Close()
	node := edgetest.Share().Start(t, sample.Protocol(), func(c *edge.Config) { c.Origins = []string{web.URL} })
	node.Say("demo",
		edgetest.Event(schema.TypeMessageStart, `{"message_id":"m1","role":"assistant"}`),
		edgetest.Event(schema.TypeTextDelta, `{"text":"Pelicans <b>fish</b> "}`),
		edgetest.Event(schema.TypeTextDelta, `{"text":"together."}`),
		edgetest.Event(schema.TypeMessageEnd, `{"message_id":"m1","stop_reason":"end_turn"}`),
		edgetest.Event(schema.TypeRunLifecycle, `{"state":"done"}`))
	for range 2 {
		shown := testkit.DOM(t, web.URL+"/?run=demo&server=http://"+node.Host, 10*time.Second)
		for _, want := range []string{"Pelicans &lt;b&gt;fish&lt;/b&gt; together.", `<h1 id="state">done</h1>`} {
			if strings.Count(shown, want) != 1 {
				t.Errorf("the page lacks %q\n%s", want, shown)
			}
		}
	}
	if shown := testkit.DOM(t, web.URL+"/?run=nowhere&server=http://"+node.Host,
		10*time.Second); !strings.Contains(shown, ">no such run</h1>") {
		t.Errorf("a run that does not exist\n%s", shown)
	}
}
