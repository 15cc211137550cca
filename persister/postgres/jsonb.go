package postgres

// maxNumber bounds the digits of a number in jsonb, with its exponent written out. numeric allows 131,072 before the
// point and 16,383 after it, but a few bytes like 1e100000 would become 100 kB each time the column is read.
const maxNumber = 1000

// maxExponent is the number of exponent digits that are read.
const maxExponent = 6

// jsonbHolds reports whether jsonb accepts a JSON text that is known to be valid and not nested deeply. jsonb refuses
// the escape \u0000, surrogates that do not form a pair, and numbers out of the range of numeric. jsonbHolds may report
// false for a number that jsonb accepts, but never true for a text that it refuses.
func jsonbHolds(text []byte) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if i = stringHolds(text, i+1); i < 0 {
				return false
			}
		case c == '-' || c >= '0' && c <= '9':
			end, ok := numberHolds(text, i)
			if !ok {
				return false
			}
			i = end - 1
		}
	}
	return true
}

// stringHolds returns the index of the closing quote, or -1 when jsonb refuses the string.
func stringHolds(text []byte, i int) int {
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i
		case '\\':
			if i++; i >= len(text) {
				return -1
			}
			if text[i] != 'u' {
				continue
			}
			switch u := hex4(text, i+1); {
			case u <= 0: // \u0000 or no hex digits
				return -1
			case u >= 0xDC00 && u < 0xE000:
				return -1
			case u >= 0xD800 && u < 0xDC00:
				if i+10 >= len(text) || text[i+5] != '\\' || text[i+6] != 'u' {
					return -1
				}
				if low := hex4(text, i+7); low < 0xDC00 || low > 0xDFFF {
					return -1
				}
				i += 10
			default:
				i += 4
			}
		}
	}
	return -1
}

func hex4(text []byte, i int) int {
	if i+4 > len(text) {
		return -1
	}
	n := 0
	for _, c := range text[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | int(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | int(c-'a'+10)
		case c >= 'A' && c <= 'F':
			n = n<<4 | int(c-'A'+10)
		default:
			return -1
		}
	}
	return n
}

// numberHolds returns the index after the number, and reports whether jsonb accepts it.
func numberHolds(text []byte, i int) (end int, ok bool) {
	start := i
	for i < len(text) && (text[i] == '-' || text[i] == '.' || text[i] >= '0' && text[i] <= '9') {
		i++
	}
	size := i - start
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		exp, first := 0, i
		for i < len(text) && text[i] >= '0' && text[i] <= '9' {
			if i-first < maxExponent {
				exp = exp*10 + int(text[i]-'0')
			} else {
				exp = maxNumber + 1
			}
			i++
		}
		size += exp
	}
	return i, size <= maxNumber
}
