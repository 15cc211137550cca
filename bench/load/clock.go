package load

import "time"

// clock returns the time of this process that marks carry, in ns since it was made. It is monotonic.
type clock struct{ base time.Time }

func (c *clock) now() int64 { return int64(time.Since(c.base)) }
