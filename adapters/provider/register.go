package provider

// Register finds what a piece belongs to by the id or the place that it names. Both may be named wrongly: an entry that the
// piece does not fit is passed over.
type Register[T any] struct {
	byID    map[string]T
	byPlace map[int]T
}

// Find returns the entry of an id, else that of a place. "" and a negative place name nothing.
func (r *Register[T]) Find(id string, place int, fits func(T) bool) (entry T, ok bool) {
	if entry, ok = r.byID[id]; ok && id != "" && fits(entry) {
		return entry, true
	}
	if entry, ok = r.byPlace[place]; ok && place >= 0 && fits(entry) {
		return entry, true
	}
	return *new(T), false
}

// Put enters an entry under an id and a place, in the stead of an older one.
func (r *Register[T]) Put(id string, place int, entry T) {
	if r.byID == nil {
		r.byID, r.byPlace = make(map[string]T), make(map[int]T)
	}
	if id != "" {
		r.byID[id] = entry
	}
	if place >= 0 {
		r.byPlace[place] = entry
	}
}
