package qoder

import "agentstream/schema/jsonscan"

// resultContent returns blocks for what a tool has answered: what is a list of blocks as it is, a text as it is
// written, everything else as its JSON.
func resultContent(payload []byte) []byte {
	b := []byte{'['}
	output, problem := field(payload, "output"), field(payload, "error_detail")
	if len(problem) == 0 || string(problem) == "null" {
		problem = field(payload, "error") // the code alone, or an object, as it was once
	}
	switch {
	case len(output) == 0 || string(output) == "null":
	case isBlocks(output):
		b = append(b, output[1:len(output)-1]...)
	default:
		b = appendTextBlock(b, output)
	}
	if len(problem) > 0 && string(problem) != "null" {
		if message := field(problem, "message"); isString(message) && len(message) > 2 {
			problem = message
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendTextBlock(b, problem)
	}
	return append(b, ']')
}

// isBlocks reports whether a value is a list of blocks that a result may have.
func isBlocks(v []byte) bool {
	n := 0
	for block := range jsonscan.Elements(v) {
		n++
		switch text(block, "type") {
		case "text":
			if !isString(field(block, "text")) {
				return false
			}
		case "image", "document", "search_result":
		default:
			return false
		}
	}
	return n > 0
}

// appendTextBlock appends a block of text: a string as it is written, or the JSON of anything else.
func appendTextBlock(b, v []byte) []byte {
	b = append(b, `{"type":"text","text":`...)
	if isString(v) {
		return append(append(b, v...), '}')
	}
	return append(appendQuoted(append(b, '"'), v), `"}`...)
}

// appendContent appends a content: blocks as they are, a text as one block.
func appendContent(b, v []byte) []byte {
	if len(v) > 0 && v[0] == '[' {
		return append(b, v...)
	}
	if len(v) == 0 || string(v) == "null" {
		return append(b, `[]`...)
	}
	return append(appendTextBlock(append(b, '['), v), ']')
}

// unquote decodes a string, and returns the JSON of everything else.
func unquote(v []byte) string {
	if s, ok := jsonscan.Unquote(v); ok {
		return s
	}
	return string(v)
}
