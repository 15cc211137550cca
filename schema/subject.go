package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// Subjects of the log. A stored pack lies under
//
//	agent.<partition>.<tenant>.<run>.<child>
//
// and its republished copy under the same tokens behind LivePrefix. The child token of the run itself is RootLane. One
// token more, the id of a run behind RootLane, is no pack: see ChildSubject and HoldSubject. The partition is computed
// by the client because a compare-and-set filter is never rewritten by the server.
const (
	StorePrefix = "agent"
	LivePrefix  = "live.agent"
)

// Partition returns the partition of a run, 0 … count-1. It depends on the run id alone and never
// changes while count stays, which is fixed for the life of a deployment.
func Partition(run string, count int) int {
	h := uint32(2166136261) // FNV-1a
	for i := 0; i < len(run); i++ {
		h = (h ^ uint32(run[i])) * 16777619
	}
	return int(h % uint32(count))
}

// Subject returns the subject under which a pack of this lane is stored. Lane "" is the root lane. The ids must be
// valid.
func Subject(key RunKey, lane string, partitions int) string {
	if lane == "" {
		lane = RootLane
	}
	return runSubject(StorePrefix, key, partitions) + lane
}

// PackSubject returns Subject and RunFilter of a pack and the partition of its run, for less than one by one.
func PackSubject(key RunKey, lane string, partitions int) (subject, filter string, partition int) {
	if lane == "" {
		lane = RootLane
	}
	partition = Partition(key.Run, partitions)
	b := append(make([]byte, 0, 512), StorePrefix...)
	b = strconv.AppendInt(append(b, '.'), int64(partition), 10)
	b = append(append(b, '.'), key.Tenant...)
	b = append(append(append(b, '.'), key.Run...), '.')
	run := len(b)
	b = append(b, lane...)
	end := len(b)
	b = append(append(b, b[:run]...), '>')
	both := string(b)
	return both[:end], both[end:], partition
}

// RunFilter matches every pack of a run and its children. It is the filter of the compare-and-set:
// all writers must send these very bytes (a different spelling bypasses the check on replicated
// streams), so no one else builds it.
func RunFilter(key RunKey, partitions int) string {
	return runSubject(StorePrefix, key, partitions) + ">"
}

// LiveFilter matches the republished copies of a run and its children.
func LiveFilter(key RunKey, partitions int) string {
	return runSubject(LivePrefix, key, partitions) + ">"
}

// PartitionFilter matches all packs of one partition.
func PartitionFilter(partition int) string {
	return StorePrefix + "." + strconv.Itoa(partition) + ".>"
}

// ChildFilter matches the packs of one partition in which a child of the tenant writes, in whatever run.
// The ids must be valid.
func ChildFilter(tenant, child string, partition int) string {
	return StorePrefix + "." + strconv.Itoa(partition) + "." + tenant + ".*." + child
}

// ChildSubject returns the subject under which the log records that a run's id is that of a child of root. Every
// filter of the run matches it, also that of the compare-and-set, so that of a spawn and a beginning by itself
// exactly one is first. The ids must be valid.
func ChildSubject(child RunKey, root string, partitions int) string {
	return runSubject(StorePrefix, child, partitions) + RootLane + "." + root
}

// HoldSubject returns the subject under which a writer asks the run's others to wait for it. It is that of a child of
// itself, which there is not, so that whoever passes over ChildSubjects passes over it as well; and every filter of the
// run matches it, so that all that was based on an older head is refused. Its HeaderHold says who asks.
func HoldSubject(key RunKey, partitions int) string { return ChildSubject(key, key.Run, partitions) }

// ParseChildSubject takes a ChildSubject apart. ok is false for every other subject. With the child for its own root it
// is a HoldSubject.
func ParseChildSubject(subject string) (child RunKey, root string, ok bool) {
	at := strings.LastIndexByte(subject, '.')
	// That of a pack has one dot less. Nearly all are such, and are not worth the error that ParseSubject would make.
	if strings.Count(subject, ".") != 5 || !strings.HasPrefix(subject, StorePrefix+".") {
		return RunKey{}, "", false
	}
	child, lane, err := ParseSubject(subject[:at])
	root = subject[at+1:]
	if err != nil || lane != "" || ValidRunID(root) != nil {
		return RunKey{}, "", false
	}
	return child, root, true
}

func runSubject(prefix string, key RunKey, partitions int) string {
	return prefix + "." + strconv.Itoa(Partition(key.Run, partitions)) + "." + key.Tenant + "." + key.Run + "."
}

// ParseSubject takes a stored or a live subject apart. The lane "" is the root lane. An error wraps
// ErrBadPack: it was published by something else than the writers of this project.
func ParseSubject(subject string) (key RunKey, lane string, err error) {
	rest, ok := strings.CutPrefix(subject, LivePrefix+".")
	if !ok {
		rest, ok = strings.CutPrefix(subject, StorePrefix+".")
	}
	var parts [5]string
	n := 0
	for ok && n < len(parts) {
		tok, after, more := strings.Cut(rest, ".")
		parts[n] = tok
		n++
		if rest = after; !more {
			break
		}
	}
	if !ok || n != 4 {
		return RunKey{}, "", fmt.Errorf("subject %s: %w", quote(subject), ErrBadPack)
	}
	key = RunKey{Tenant: parts[1], Run: parts[2]}
	if err := key.Validate(); err != nil {
		return RunKey{}, "", fmt.Errorf("subject %s: %w: %w", quote(subject), ErrBadPack, err)
	}
	if lane = parts[3]; lane == RootLane {
		return key, "", nil
	}
	if err := ValidRunID(lane); err != nil {
		return RunKey{}, "", fmt.Errorf("subject %s: %w: %w", quote(subject), ErrBadPack, err)
	}
	return key, lane, nil
}
