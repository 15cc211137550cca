package serve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentstream/internal/cputime"
)

// TestKeysCostOnePass: some keys of a state cost about as much as one, however many are asked for.
func TestKeysCostOnePass(t *testing.T) {
	var fields, keys []string
	for i := range 2500 {
		fields = append(fields, fmt.Sprintf(`"key%d":%q`, i, strings.Repeat("x", 150)))
	}
	for i := range 64 {
		keys = append(keys, fmt.Sprintf("key%d", 39*i))
	}
	values := []byte("{" + strings.Join(fields, ",") + "}")
	if got := string(pick(values, []string{"none", keys[1], keys[0], keys[1]})); got != "{"+fields[39]+","+fields[0]+"}" {
		t.Errorf("two keys of all are %s", got)
	}
	cost := func(keys []string) time.Duration {
		return cputime.Of(func() {
			for range 20 {
				pick(values, keys)
			}
		})
	}
	cost(keys)
	if one, all := cost(keys[:1]), cost(keys); all > 8*one {
		t.Errorf("one key takes %v, %d take %v", one, len(keys), all)
	}
}
