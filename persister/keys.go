package persister

import (
	"iter"

	"agentstream/schema"
)

// Keys iterates over keys that a store returns in pages. page returns keys that follow after, in their order, and none
// at the end. The iteration ends with the first error.
func Keys(page func(after schema.RunKey) ([]schema.RunKey, error)) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) {
		var after schema.RunKey
		for {
			keys, err := page(after)
			if err != nil {
				yield(schema.RunKey{}, err)
				return
			}
			for _, key := range keys {
				if !yield(key, nil) {
					return
				}
			}
			if len(keys) == 0 {
				return
			}
			after = keys[len(keys)-1]
		}
	}
}
