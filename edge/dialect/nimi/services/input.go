package services

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
	"agentstream/schema/jsonscan"
)

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// plain is the text of a message.
func plain(m *runtimev1.ChatMessage) string {
	text := m.GetContent()
	for _, p := range m.GetParts() {
		text += p.GetText()
	}
	return text
}

// message is one of the input, as a worker reads it.
func message(m *runtimev1.ChatMessage) []byte {
	role := m.GetRole()
	if role == "" {
		role = "user"
	}
	o := jsonscan.Object("{").Str("role", role).OptStr("name", m.GetName())
	if len(m.GetParts()) == 0 {
		return o.Str("content", m.GetContent()).End()
	}
	list := []byte{'['}
	add := func(b []byte) {
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, b...)
	}
	if m.GetContent() != "" {
		add(jsonscan.Object("{").Str("type", "text").Str("text", m.GetContent()).End())
	}
	for _, p := range m.GetParts() {
		switch c := p.GetContent().(type) {
		case *runtimev1.ChatContentPart_Text:
			add(jsonscan.Object("{").Str("type", "text").Str("text", c.Text).End())
		case *runtimev1.ChatContentPart_ImageUrl:
			add(jsonscan.Object("{").Str("type", "image_url").Str("url", c.ImageUrl.GetUrl()).OptStr("detail", c.ImageUrl.GetDetail()).End())
		case *runtimev1.ChatContentPart_VideoUrl:
			add(jsonscan.Object("{").Str("type", "video_url").Str("url", c.VideoUrl).End())
		case *runtimev1.ChatContentPart_AudioUrl:
			add(jsonscan.Object("{").Str("type", "audio_url").Str("url", c.AudioUrl).End())
		case *runtimev1.ChatContentPart_ArtifactRef:
			add(jsonscan.Object("{").Str("type", "artifact_ref").Str("artifact_id", c.ArtifactRef.GetArtifactId()).End())
		}
	}
	return o.Raw("content", append(list, ']')).End()
}

// tools are those that the model may call; nil for none.
func tools(list []*runtimev1.ToolSpec) []byte {
	if len(list) == 0 {
		return nil
	}
	b := []byte{'['}
	for i, t := range list {
		if i > 0 {
			b = append(b, ',')
		}
		o := jsonscan.Object("{").Str("name", t.GetName())
		if s := t.GetInputSchema(); s != nil {
			if text, err := protojson.Marshal(s); err == nil {
				o = o.Raw("input_schema", text)
			}
		}
		b = append(b, o.End()...)
	}
	return append(b, ']')
}

// textParameters are those that are set; nil for none.
func textParameters(t *runtimev1.TextGenerateScenarioSpec) []byte {
	o := floats(jsonscan.Object("{"), field{"temperature", t.GetTemperature()}, field{"top_p", t.GetTopP()})
	if n := t.GetMaxTokens(); n > 0 {
		o = o.Int("max_tokens", int64(n))
	}
	if r := t.GetReasoning(); r.GetMode() != runtimev1.ReasoningMode_REASONING_MODE_UNSPECIFIED {
		mode := "off"
		if r.GetMode() == runtimev1.ReasoningMode_REASONING_MODE_ON {
			mode = "on"
		}
		in := jsonscan.Object("{").Str("mode", mode)
		if n := r.GetBudgetTokens(); n > 0 {
			in = in.Int("budget_tokens", int64(n))
		}
		o = o.Raw("reasoning", in.End())
	}
	return some(o)
}

// speechParameters are those that are set; nil for none.
func speechParameters(t *runtimev1.SpeechSynthesizeScenarioSpec) []byte {
	o := jsonscan.Object("{").OptStr("language", t.GetLanguage()).OptStr("audio_format", t.GetAudioFormat()).OptStr("emotion", t.GetEmotion())
	o = floats(o, field{"speed", t.GetSpeed()}, field{"pitch", t.GetPitch()}, field{"volume", t.GetVolume()})
	if n := t.GetSampleRateHz(); n > 0 {
		o = o.Int("sample_rate_hz", int64(n))
	}
	v := t.GetVoiceRef()
	return some(o.OptStr("voice", v.GetPresetVoiceId()+v.GetVoiceAssetId()+v.GetProviderVoiceRef()))
}

type field struct {
	name  string
	value float32
}

func floats(o jsonscan.Object, list ...field) jsonscan.Object {
	for _, f := range list {
		if f.value != 0 {
			o = o.Float(f.name, float64(f.value))
		}
	}
	return o
}

func some(o jsonscan.Object) []byte {
	if len(o) == 1 {
		return nil
	}
	return o.End()
}
