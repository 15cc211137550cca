package jsonscan_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"agentstream/schema/jsonscan"
)

// TestWholeNumber: a number is read as a float64 has it, as in JavaScript, however it is written, and none above 2^53-1.
func TestWholeNumber(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	forms := []func(n uint64) string{
		func(n uint64) string { return strconv.FormatUint(n, 10) },
		func(n uint64) string { return strconv.FormatUint(n, 10) + ".0" },
		func(n uint64) string { return strconv.FormatUint(n, 10) + "e0" },
		func(n uint64) string { return "-" + strconv.FormatUint(n, 10) },
		func(n uint64) string { return strconv.FormatUint(n, 10) + ".5" },
	}
	const most = 1<<53 - 1
	numbers := []uint64{0, 9, 10, 999_999_999_999_999, 1_000_000_000_000_000, most, most + 1, 1 << 63}
	for range 2000 {
		numbers = append(numbers, r.Uint64()>>r.IntN(64))
	}
	for _, n := range numbers {
		for _, form := range forms {
			text := form(n)
			var want float64
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			whole := want >= 0 && want <= most && want == math.Trunc(want)
			if got, ok := jsonscan.WholeNumber([]byte(text)); ok != whole || ok && float64(got) != want {
				t.Errorf("%s: %d, %v", text, got, ok)
			}
		}
	}
	for _, text := range []string{"", `"1"`, "null", "true", "{}", "[1]", "-"} {
		if n, ok := jsonscan.WholeNumber([]byte(text)); ok {
			t.Errorf("%s: %d", text, n)
		}
	}
}
