package brokentest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// responses are the rewritings of the Responses API.
func responses() (list []Rewriting) {
	add := func(name string, but Aspect, do func(r *rand.Rand, s *Body) bool) {
		list = append(list, Rewriting{name, []API{Responses}, do, but})
	}
	is := func(types ...string) func(Object) bool {
		return func(o Object) bool {
			return slices.ContainsFunc(types, func(t string) bool { return strings.HasSuffix(text(o, "type"), t) })
		}
	}
	final := is("response.completed", "response.failed", "response.incomplete")
	add("items all at output_index 0", 0, each(func(_ int, o Object) bool { return o["output_index"] != nil && put(o, "output_index", 0) }))
	add("no output_index", 0, each(func(_ int, o Object) bool {
		had := o["output_index"] != nil
		delete(o, "output_index")
		return had
	}))
	add("output_index shifted on pieces", 0, each(func(_ int, o Object) bool {
		return o["output_index"] != nil && object(o, "item") == nil && put(o, "output_index", number(o["output_index"])+1)
	}))
	add("item ids change", IDs, each(func(i int, o Object) bool { return setItemID(o, fmt.Sprint("item_", i)) }))
	add("no item ids on pieces", 0, each(func(_ int, o Object) bool {
		had := o["item_id"] != nil
		delete(o, "item_id")
		return had
	}))
	add("call_id another at the end", IDs, each(func(_ int, o Object) (any bool) {
		for _, it := range outputs(o, final) {
			if it["call_id"] != nil {
				any = put(it, "call_id", text(it, "call_id")+"_end")
			}
		}
		return any
	}))
	add("call_id another in the item's end", IDs, each(func(_ int, o Object) bool {
		it := object(o, "item")
		return is("output_item.done")(o) && it["call_id"] != nil && put(it, "call_id", text(it, "call_id")+"_end")
	}))
	add("no output_item.done", IDs, once(drop(is("output_item.done"))))
	add("no output_item.added", IDs, once(drop(is("output_item.added"))))
	add("no deltas", Split, drop(func(o Object) bool { return is(".delta")(o) }))
	add("no ends of texts", 0, drop(is("output_text.done", "arguments.done", "summary_text.done", "input.done",
		"code.done")))
	add("no content parts", 0, drop(is("content_part.added", "content_part.done", "summary_part.added",
		"summary_part.done")))
	add("no response.completed", Stop|Usage|IDs|Result, once(drop(final)))
	add("no response.created", IDs, once(unlessFailed(drop(is("response.created", "response.in_progress")))))
	return append(list, responseEnds(is, final)...)
}

// responseEnds are those of the end of a response, and of its numbers and names.
func responseEnds(is func(...string) func(Object) bool, final func(Object) bool) (list []Rewriting) {
	add := func(name string, but Aspect, do func(r *rand.Rand, s *Body) bool) {
		list = append(list, Rewriting{name, []API{Responses}, do, but})
	}
	add("output empty at the end", 0, once(each(func(_ int, o Object) bool {
		r := object(o, "response")
		return final(o) && r["output"] != nil && put(r, "output", []any{})
	})))
	add("response.completed twice", 0, func(_ *rand.Rand, s *Body) bool {
		for i, f := range s.Frames {
			if f.Data != nil && final(f.Data) {
				c := f.clone()
				c.Data["sequence_number"] = number(f.Data["sequence_number"]) + 1
				s.Frames = slices.Insert(s.Frames, i+1, c)
				return true
			}
		}
		return false
	})
	add("output_item.done twice", 0, func(_ *rand.Rand, s *Body) bool {
		for i := len(s.Frames) - 1; i >= 0; i-- {
			if o := s.Frames[i].Data; o != nil && is("output_item.done")(o) {
				c := s.Frames[i].clone()
				delete(c.Data, "sequence_number")
				s.Frames = slices.Insert(s.Frames, i+1, c)
			}
		}
		return true
	})
	add("no sequence numbers", 0, each(func(_ int, o Object) bool { delete(o, "sequence_number"); return true }))
	add("sequence numbers all 0", 0, each(func(_ int, o Object) bool { return put(o, "sequence_number", 0) }))
	add("type in the event's name alone", 0, func(_ *rand.Rand, s *Body) bool { return nameOnly(s) })
	add("usage empty", Usage, each(func(_ int, o Object) bool {
		r := object(o, "response")
		return final(o) && r["usage"] != nil && put(r, "usage", Object{})
	}))
	add("response ids change", IDs, each(func(i int, o Object) bool {
		r := object(o, "response")
		return r != nil && i > 0 && put(r, "id", fmt.Sprint("resp_other_", i))
	}))
	return list
}

// once is for rewritings of which one may be done: what both take away is nowhere else.
func once(do func(*rand.Rand, *Body) bool) func(*rand.Rand, *Body) bool {
	return func(r *rand.Rand, s *Body) bool {
		was := s.ends
		s.ends = true
		return !was && do(r, s)
	}
}

// setItemID sets another id of the item of an event.
func setItemID(o Object, id string) (any bool) {
	if o["item_id"] != nil {
		any = put(o, "item_id", id)
	}
	if it := object(o, "item"); it != nil && it["id"] != nil {
		any = put(it, "id", id)
	}
	return any
}

// outputs returns the items of the end of a response.
func outputs(o Object, final func(Object) bool) (items []Object) {
	if final(o) {
		for _, v := range list(object(o, "response"), "output") {
			it, _ := v.(Object)
			items = append(items, it)
		}
	}
	return items
}

// nameOnly takes the type out of the data: the event has it as its name.
func nameOnly(s *Body) (any bool) {
	s.Wire.Named = true
	for i, f := range s.Frames {
		if t := text(f.Data, "type"); t != "" {
			s.Frames[i].Name, any = t, true
			delete(f.Data, "type")
		}
	}
	return any
}
