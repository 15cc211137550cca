package provider

import "slices"

// Register holds what pieces belong to, and finds it by the id or the place that a piece names, or by its shape. Ids
// and places may be named wrongly: an entry that the piece does not fit is passed over.
type Register[T any] struct {
	List    []*T // in the order in which they were added
	byID    map[string][]*T
	byPlace map[int]*T
}

// maxShape bounds the entries among which one is looked for by its shape.
const maxShape = 64

// Find returns the entry of an id, else that of a place; nil when neither fits. "" and a negative place name nothing.
// Of an id that several entries have, the place decides, and else the newest that fits.
func (r *Register[T]) Find(id string, place int, fits func(*T) bool) *T {
	same := r.byID[id]
	if len(same) == 1 && fits(same[0]) {
		return same[0]
	}
	if entry := r.byPlace[place]; entry != nil && fits(entry) {
		return entry
	}
	for _, entry := range slices.Backward(same) {
		if fits(entry) {
			return entry
		}
	}
	return nil
}

// Newest returns the newest entry that fits, or of all when fits is nil; nil when there is none.
func (r *Register[T]) Newest(fits func(*T) bool) *T {
	for i := len(r.List) - 1; i >= max(0, len(r.List)-maxShape); i-- {
		if fits == nil || fits(r.List[i]) {
			return r.List[i]
		}
	}
	return nil
}

// Add adds an entry.
func (r *Register[T]) Add(id string, place int, entry *T) {
	r.List = append(r.List, entry)
	r.Name(id, place, entry)
}

// Name sets an id and a place of an entry, beside those that it has. The place is no older entry's any more.
func (r *Register[T]) Name(id string, place int, entry *T) {
	if r.byID == nil {
		r.byID, r.byPlace = make(map[string][]*T), make(map[int]*T)
	}
	if id != "" && !slices.Contains(r.byID[id], entry) {
		r.byID[id] = append(r.byID[id], entry)
	}
	if place >= 0 {
		r.byPlace[place] = entry
	}
}
