package process

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
)

// gathered returns the series of a metric by the values of their labels: their values, or how often a histogram
// was observed.
func gathered(t *testing.T, m *Metrics, name string) map[string]float64 {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			observed := float64(s.GetHistogram().GetSampleCount())
			out[strings.Join(labels, " ")] = s.GetCounter().GetValue() + s.GetGauge().GetValue() + observed
		}
	}
	return out
}

// TestTenantMetrics: nothing is counted unless it is asked for; then so many tenants have a label, and all others
// one together.
func TestTenantMetrics(t *testing.T) {
	m := NewMetrics()
	hooks := m.EdgeHooks()
	hooks.RequestDone(edge.RequestEnd{Tenant: "a"})
	if n := gathered(t, m, "agentstream_tenant_requests_total"); len(n) != 0 {
		t.Errorf("%v are counted without --tenant-metrics", n)
	}
	m.SetTenants(2)
	hooks.RequestDone(edge.RequestEnd{}) // nobody was let in
	for i := range 100 {
		for _, tenant := range []string{"a", "b", "c" + strconv.Itoa(i)} {
			hooks.RequestDone(edge.RequestEnd{Tenant: tenant, Events: 2, Sent: 10, Stream: tenant == "b"})
		}
	}
	want := map[string]float64{"stored (others)": 200, "stored a": 200, "sent b": 200}
	if got := gathered(t, m, "agentstream_tenant_events_total"); !maps.Equal(got, want) {
		t.Errorf("the events are %v, want %v", got, want)
	}
	want = map[string]float64{"(others)": 1000, "a": 1000, "b": 1000}
	if got := gathered(t, m, "agentstream_tenant_bytes_total"); !maps.Equal(got, want) {
		t.Errorf("the bytes are %v, want %v", got, want)
	}
}

// TestRequestMetrics: streams are apart from requests, what is under way goes back to 0, and an observation of a
// delivery allocates nothing.
func TestRequestMetrics(t *testing.T) {
	m := NewMetrics()
	hooks := m.EdgeHooks()
	hooks.RequestOpened()
	hooks.RequestOpened()
	if n := gathered(t, m, "agentstream_requests_in_flight")[""]; n != 2 {
		t.Errorf("%v requests are under way, want 2", n)
	}
	hooks.RequestDone(edge.RequestEnd{Route: "GET /a", Status: 200, Took: time.Second})
	hooks.RequestDone(edge.RequestEnd{Route: "GET /b", Status: 200, Took: time.Hour, Stream: true})
	if n := gathered(t, m, "agentstream_requests_in_flight")[""]; n != 0 {
		t.Errorf("%v requests are under way, want none", n)
	}
	if got := gathered(t, m, "agentstream_request_seconds"); !maps.Equal(got, map[string]float64{"GET /a 200": 1}) {
		t.Errorf("the requests are %v", got)
	}
	if got := gathered(t, m, "agentstream_stream_seconds"); !maps.Equal(got, map[string]float64{"GET /b 200": 1}) {
		t.Errorf("the streams are %v", got)
	}
	hooks.Delivered("native", time.Millisecond)
	hooks.Delivered("native", time.Minute)
	i := 0
	if n := testing.AllocsPerRun(100, func() {
		i++
		hooks.Delivered("native", []time.Duration{time.Millisecond, time.Minute}[i%2])
	}); n != 0 {
		t.Errorf("an observation allocates %v times", n)
	}
}

// TestNativeHistogram: a scraper that asks for Protobuf gets deliveries as a native histogram with fine buckets, and the
// classic ones besides; a scraper that asks for text gets those alone.
func TestNativeHistogram(t *testing.T) {
	m := NewMetrics()
	for i := range 1000 {
		m.EdgeHooks().Delivered("native", time.Duration(i+1)*time.Millisecond)
	}
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for families[i].GetName() != "agentstream_delivery_seconds" {
		i++
	}
	h, fine := families[i].Metric[0].Histogram, 0
	for _, span := range h.GetPositiveSpan() {
		fine += int(span.GetLength())
	}
	if h.GetSampleCount() != 1000 || h.GetSchema() != 3 || fine < 40 || len(h.GetBucket()) != 16 {
		t.Errorf("%d observations, schema %d, %d fine buckets, %d classic ones", h.GetSampleCount(), h.GetSchema(), fine,
			len(h.GetBucket()))
	}
	const classic = `agentstream_delivery_seconds_bucket{dialect="native",le="0.512"} 512`
	for accept, want := range map[string]string{
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited": "application/vnd.google.protobuf",
		"text/plain": "text/plain",
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", accept)
		(&Admin{Metrics: m, checker: edge.NewChecker(nil)}).handler().ServeHTTP(w, r)
		kind, text := w.Header().Get("Content-Type"), w.Body.String()
		if !strings.HasPrefix(kind, want) || strings.Contains(text, classic) != (want == "text/plain") {
			t.Errorf("%s gets %s:\n%s", accept, kind, text)
		}
	}
}
