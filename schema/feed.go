package schema

import "strings"

// Feeds of a tenant: runs that never end, which ingest fills (docs/dialects/runtime.md).
const (
	FeedAccount  = "account"
	FeedMemory   = "memory"
	FeedTransfer = "transfer"
	FeedProvider = "provider"
	FeedMessage  = "message" // one for each receiving app
)

const (
	feedRun  = "runtime-"
	feedType = "custom.runtime."
)

// FeedRun returns the id of a feed's run; of FeedMessage it is the beginning of the ids.
func FeedRun(feed string) string { return feedRun + feed }

// FeedType returns the type of a feed's events.
func FeedType(feed string) string { return feedType + feed }

// IsFeed reports whether a run is a feed, by its id.
func IsFeed(run string) bool {
	name, ok := strings.CutPrefix(run, feedRun)
	switch name {
	case FeedAccount, FeedMemory, FeedTransfer, FeedProvider:
		return ok
	}
	return ok && strings.HasPrefix(name, FeedMessage+"-")
}
