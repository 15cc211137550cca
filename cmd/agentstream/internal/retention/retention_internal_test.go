package retention

import (
	"strings"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/retention"
)

// Each flag sets its own part of the policy, an empty one leaves the default, and one that is no time is named.
func TestPolicyOfFlags(t *testing.T) {
	f := RetentionFlags{KeepCompleted: "7d", KeepEnded: "36h", KeepTombstones: "never", RowsFor: "", FeedsFor: "1d"}
	p, err := f.policy()
	want := retention.Policy{Completed: 7 * persister.Day, Ended: 36 * time.Hour, Tombstones: retention.Never,
		Feeds: persister.Day}
	if err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	for flag, f := range map[string]RetentionFlags{
		"--keep-completed": {KeepCompleted: "soon"}, "--keep-ended": {KeepEnded: "-1h"},
		"--keep-tombstones": {KeepTombstones: "0d"},
		"--rows-for":        {RowsFor: "7"}, "--feeds-for": {FeedsFor: "1y"},
	} {
		if _, err := f.policy(); err == nil || !strings.HasPrefix(err.Error(), flag+" ") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if _, err := (&RetentionFlags{KeepEnded: "soon"}).Parts(nil, nil, nil, nil, retention.Hooks{}, nil); err == nil {
		t.Error("a part of a bad policy")
	}
}
