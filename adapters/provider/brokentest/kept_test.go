package brokentest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/schema"
)

// TestFramesAreNotKept: no machine keeps bytes of a frame, which are the next one's afterwards. A line of JSON is read
// where it was written.
func TestFramesAreNotKept(t *testing.T) {
	for n, rec := range recordings(t) {
		for i, rewrite := range For(rec.api) {
			s, r := rec.stream.Clone(), rand.New(rand.NewPCG(uint64(i), 3))
			if (i+n)%4 > 0 || !rewrite.Do(r, s) {
				continue
			}
			s.Wire = Wire{JSON: "lines"}
			body := s.Body(r)
			overwritten := decoders[rec.api](provider.Config{})
			var got []schema.Event
			for line := range bytes.Lines(body) {
				line = slices.Clone(line)
				events, _ := overwritten.Write(line)
				got = append(got, events...)
				copy(line, bytes.Repeat([]byte{'~'}, len(line)))
			}
			got = append(got, overwritten.Close()...)
			want := providertest.Decode(t, decoders[rec.api](provider.Config{}), body)
			same := func(a, b schema.Event) bool { return a.Type == b.Type && bytes.Equal(a.Payload, b.Payload) }
			if !slices.EqualFunc(got, want, same) {
				t.Errorf("%s, %s: another outcome when frames are overwritten", rec.name, rewrite.Name)
			}
		}
	}
}
