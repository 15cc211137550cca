package process

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/edge"
)

// tenantMetrics count what tenants use, once a request or a stream is over. Only so many tenants have a label of
// their own: labels of a registry stay, and a tenant may be made by anybody who may make a key.
type tenantMetrics struct {
	requests, events, sent, redacted *prometheus.CounterVec

	mu    sync.Mutex
	most  int // tenants with a label of their own; 0: nothing is counted
	known map[string]bool
}

// otherTenants is the label of all tenants beyond those that have one. It is no valid name of a tenant.
const otherTenants = "(others)"

func newTenantMetrics(r instruments) *tenantMetrics {
	return &tenantMetrics{
		requests: r.counters("tenant_requests_total",
			"Requests of a tenant that are over, streams included; with --tenant-metrics.", "tenant"),
		events: r.counters("tenant_events_total",
			"Events that they stored, or that streams delivered: stored, sent.", "tenant", "kind"),
		sent:     r.counters("tenant_bytes_total", "Bytes that they were answered.", "tenant"),
		redacted: r.counters("tenant_redacted_total", "What was hidden in their events, by rule.", "tenant", "rule"),
		known:    make(map[string]bool),
	}
}

// SetTenants has what so many tenants use counted, each under its name. 0 counts nothing.
func (m *Metrics) SetTenants(most int) {
	m.tenants.mu.Lock()
	defer m.tenants.mu.Unlock()
	m.tenants.most = most
}

// label returns the label of a tenant; "": it is not counted.
func (t *tenantMetrics) label(tenant string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.most == 0 || tenant == "":
		return ""
	case t.known[tenant]:
	case len(t.known) >= t.most:
		return otherTenants
	default:
		t.known[tenant] = true
	}
	return tenant
}

func (t *tenantMetrics) count(r edge.RequestEnd) {
	tenant := t.label(r.Tenant)
	if tenant == "" {
		return
	}
	kind := "stored"
	if r.Stream {
		kind = "sent"
	}
	t.requests.WithLabelValues(tenant).Inc()
	t.events.WithLabelValues(tenant, kind).Add(float64(r.Events))
	t.sent.WithLabelValues(tenant).Add(float64(r.Sent))
}
