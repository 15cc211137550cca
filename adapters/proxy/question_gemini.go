package proxy

import "agentstream/adapters/provider"

// gemini reads a request of generateContent. Its names come in two spellings.
func (q *question) gemini(all provider.Fields) {
	contents := all.Get("contents")
	list := provider.Elements(contents)
	if provider.IsObject(contents) {
		list = append(list, contents)
	}
	var content []part
	at := -1
	for i, raw := range list {
		m, _ := provider.Parse(raw)
		role := m.Str("role")
		if role == "model" {
			continue
		}
		var parts []part
		for _, p := range provider.Elements(m.Get("parts")) {
			f, _ := provider.Parse(p)
			if r := either(f, "functionResponse", "function_response"); r != nil {
				q.geminiResult(r)
				continue
			}
			parts = addGemini(parts, f, p)
		}
		if len(parts) > 0 && role != "function" {
			content, at = parts, i
		}
	}
	q.message(content, at, "", at == len(list)-1)
}

func either(f provider.Fields, a, b string) provider.Fields {
	if v := f.Object(a); v != nil {
		return v
	}
	return f.Object(b)
}

// geminiResult takes the answer to a call, which may have no id: then it is the oldest of that name.
func (q *question) geminiResult(r provider.Fields) {
	id := r.Str("id")
	if id == "" {
		id = q.c.lane.oldest(r.Str("name"))
	}
	q.result(id, r.Object("response").Get("error") != nil, r.Get("response"), "functionResponse")
}

// addGemini takes a part, which is called after its member.
func addGemini(parts []part, f provider.Fields, raw []byte) []part {
	if len(f) == 0 {
		return parts
	}
	if v := f.Get("text"); provider.IsString(v) {
		return append(parts, part{text: v})
	}
	typed := append(provider.Fields{{Name: "type", Value: provider.Quote(f[0].Name)}}, f...)
	return append(parts, part{kind: f[0].Name, raw: typed.Encode()})
}
