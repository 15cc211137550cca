package schema

import (
	"fmt"

	"agentstream/schema/jsonscan"
)

// Address is where a line that names its run goes, and how its repeat is recognised.
type Address struct {
	Run []byte // a valid id; a part of the line
	Key string // what the line has as its key; "" for none
	ID  []byte // of the event, unchecked; a part of the line; nil for none
	Seq Seq    // that the event brings; 0 for none
}

// ErrNoObject reports that a line is not a JSON object at all. It wraps ErrMalformed.
var ErrNoObject = fmt.Errorf("not a JSON object: %w", ErrMalformed)

// ErrNoRun reports that a line does not name its run. It wraps ErrMalformed.
var ErrNoRun = fmt.Errorf("run_id is missing: %w", ErrMalformed)

// ReadAddress reads the address of one event on a line of its own. "key", which is not the event's, is overwritten with
// spaces in line. All else is left to DecodeBatch. The error wraps ErrNoObject, ErrNoRun, ErrBadID or ErrMalformed.
func ReadAddress(line []byte) (a Address, err error) {
	i := jsonscan.SkipSpace(line, 0)
	if i == len(line) || line[i] != '{' {
		return a, ErrNoObject
	}
	from, key, next := i, [2]int{}, 0
	for {
		if i = jsonscan.SkipSpace(line, i+1); i < len(line) && line[i] == '}' && line[from] == '{' {
			break
		}
		if next = nextMember(line, i); next < 0 {
			return a, ErrNoObject
		}
		name, value := splitMember(line[i:next])
		if string(name) == `"key"` {
			if key[1] > 0 {
				return a, fmt.Errorf("field key stands twice: %w", ErrMalformed)
			}
			key = [2]int{i, next}
		}
		if fault := a.set(name, value); err == nil {
			err = fault
		}
		if from = jsonscan.SkipSpace(line, next); from >= len(line) {
			return a, ErrNoObject
		}
		if i = from; line[i] == '}' {
			break
		}
		if line[i] != ',' {
			return a, ErrNoObject
		}
	}
	if jsonscan.SkipSpace(line, i+1) != len(line) {
		return a, ErrNoObject
	}
	if err == nil && a.Run == nil {
		err = ErrNoRun
	}
	if key[1] > 0 {
		blank(line, key[0], key[1])
	}
	return a, err
}

// nextMember returns the index behind the member that begins at i, or -1.
func nextMember(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	if i = jsonscan.ScanString(b, i); i < 0 {
		return -1
	}
	if i = jsonscan.SkipSpace(b, i); i >= len(b) || b[i] != ':' {
		return -1
	}
	return jsonscan.ScanValue(b, jsonscan.SkipSpace(b, i+1), maxDepth-1)
}

// splitMember takes a member apart that nextMember has found.
func splitMember(member []byte) (name, value []byte) {
	end := jsonscan.ScanString(member, 0)
	return member[:end], member[jsonscan.SkipSpace(member, jsonscan.SkipSpace(member, end)+1):]
}

// set reads one member. What is wrong with others than run_id and key, DecodeBatch says.
func (a *Address) set(name, value []byte) (err error) {
	switch string(name) {
	case `"run_id"`:
		if a.Run, err = plainID(value); err != nil {
			return fmt.Errorf("run_id: %w", err)
		}
	case `"key"`:
		if a.Key, err = unquote(value); err == nil && a.Key == "" {
			err = fmt.Errorf("it is empty: %w", ErrMalformed)
		}
		if err != nil {
			return fmt.Errorf("key: %w", err)
		}
	case `"id"`:
		if value[0] == '"' {
			a.ID = value[1 : len(value)-1]
		}
	case `"seq"`:
		a.Seq, _ = parseSeq(value)
	}
	return nil
}

// plainID returns the id of a run in a JSON value.
func plainID(value []byte) ([]byte, error) {
	if value[0] != '"' {
		return nil, fmt.Errorf("not a string: %w", ErrMalformed)
	}
	id := value[1 : len(value)-1]
	for _, c := range id {
		if !tokenByte[c] {
			return id, ValidRunID(string(id))
		}
	}
	if len(id) < 2 || len(id) > MaxRunID { // only then is it to be looked at as a text
		return id, ValidRunID(string(id))
	}
	return id, nil
}

// blank overwrites the member line[from:to], and the comma that divides it from another.
func blank(line []byte, from, to int) {
	if i := jsonscan.SkipSpace(line, to); line[i] == ',' {
		to = i + 1
	} else {
		for i = from - 1; line[i] != '{' && line[i] != ','; i-- {
		}
		if line[i] == ',' {
			from = i
		}
	}
	for ; from < to; from++ {
		line[from] = ' '
	}
}
