package protocol

import (
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/producers"
)

// maxIdempotencyKey is the longest key, in bytes.
const maxIdempotencyKey = 255

// Keyed reads the values of the header in which an idempotency key comes.
func Keyed(header string, values []string) (producers.AppendOptions, error) {
	if len(values) == 0 {
		return producers.AppendOptions{}, nil
	}
	key := values[0]
	bad := len(values) > 1 || key == "" || len(key) > maxIdempotencyKey
	for i := 0; i < len(key) && !bad; i++ {
		bad = key[i] < ' ' || key[i] > '~'
	}
	if bad {
		return producers.AppendOptions{}, fmt.Errorf("%s is not one value of 1 to %d printable ASCII characters: %w",
			header, maxIdempotencyKey, dialect.ErrBadRequest)
	}
	return producers.AppendOptions{IdempotencyKey: key}, nil
}
