package serve

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"agentstream/protocols/nimi"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// session is the payload of session.created (docs/dialects/runtime.md, "In the log").
type session struct {
	Once       bool       `json:"once"`
	Model      string     `json:"model"`
	System     string     `json:"system,omitempty"`
	Tools      []tool     `json:"tools,omitempty"`
	Parameters parameters `json:"parameters,omitzero"`
	App        string     `json:"app_id"`
	Subject    string     `json:"subject,omitempty"`
	Deadlines  deadlines  `json:"deadlines,omitzero"`
	Runtime    view       `json:"runtime"`
}

type tool struct {
	Name        string           `json:"name"`
	InputSchema *structpb.Struct `json:"input_schema,omitempty"`
}

// parameters are those that are set.
type parameters struct {
	Temperature float32   `json:"temperature,omitzero"`
	TopP        float32   `json:"top_p,omitzero"`
	MaxTokens   int32     `json:"max_tokens,omitzero"`
	Reasoning   reasoning `json:"reasoning,omitzero"`

	Language   string  `json:"language,omitempty"`
	Format     string  `json:"audio_format,omitempty"`
	Emotion    string  `json:"emotion,omitempty"`
	Speed      float32 `json:"speed,omitzero"`
	Pitch      float32 `json:"pitch,omitzero"`
	Volume     float32 `json:"volume,omitzero"`
	SampleRate int32   `json:"sample_rate_hz,omitzero"`
	Voice      string  `json:"voice,omitempty"`
}

type reasoning struct {
	Mode   string `json:"mode"`
	Budget int32  `json:"budget_tokens,omitzero"`
}

// deadlines are in milliseconds (K-STREAM-007).
type deadlines struct {
	First int64 `json:"first_ms,omitzero"`
	Idle  int64 `json:"idle_ms,omitzero"`
	Total int64 `json:"total_ms"`
}

// view is how the run is shown.
type view struct {
	As           string            `json:"as"` // stream, job, workflow, realtime
	Type         string            `json:"type"`
	Trace        string            `json:"trace,omitempty"`
	Route        string            `json:"route"`
	OnDisconnect string            `json:"on_disconnect,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Workflow     json.RawMessage   `json:"workflow,omitempty"`
}

// input is the payload of command.message.
type input struct {
	Content  string    `json:"content"`
	Messages []message `json:"messages,omitempty"`
}

type message struct {
	Role    string `json:"role"`
	Name    string `json:"name,omitempty"`
	Content any    `json:"content"` // a text, or parts
}

type part struct {
	Type       string `json:"type"`
	Text       string `json:"text,omitempty"`
	URL        string `json:"url,omitempty"`
	Detail     string `json:"detail,omitempty"`
	ArtifactID string `json:"artifact_id,omitempty"`
}

// encode returns v as JSON. What JSON has no form for, a number that is none, is bad input.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, nimi.Refuse(runtimev1.ReasonCode_AI_INPUT_INVALID, "%v", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// encodeMessage returns a message as JSON without the spaces that protojson puts at random.
func encodeMessage(m proto.Message, o protojson.MarshalOptions) ([]byte, error) {
	text, err := o.Marshal(m)
	if err != nil {
		return nil, nimi.Refuse(runtimev1.ReasonCode_PROTOCOL_ENVELOPE_INVALID, "%v", err)
	}
	return encode(json.RawMessage(text))
}

// plain is the text of a message.
func plain(m *runtimev1.ChatMessage) string {
	text := m.GetContent()
	for _, p := range m.GetParts() {
		text += p.GetText()
	}
	return text
}

// messageOf is one of the input, as a worker reads it.
func messageOf(m *runtimev1.ChatMessage) message {
	out := message{Role: m.GetRole(), Name: m.GetName(), Content: m.GetContent()}
	if out.Role == "" {
		out.Role = "user"
	}
	if len(m.GetParts()) == 0 {
		return out
	}
	var list []part
	if m.GetContent() != "" {
		list = append(list, part{Type: "text", Text: m.GetContent()})
	}
	for _, p := range m.GetParts() {
		switch c := p.GetContent().(type) {
		case *runtimev1.ChatContentPart_Text:
			list = append(list, part{Type: "text", Text: c.Text})
		case *runtimev1.ChatContentPart_ImageUrl:
			list = append(list, part{Type: "image_url", URL: c.ImageUrl.GetUrl(), Detail: c.ImageUrl.GetDetail()})
		case *runtimev1.ChatContentPart_VideoUrl:
			list = append(list, part{Type: "video_url", URL: c.VideoUrl})
		case *runtimev1.ChatContentPart_AudioUrl:
			list = append(list, part{Type: "audio_url", URL: c.AudioUrl})
		case *runtimev1.ChatContentPart_ArtifactRef:
			list = append(list, part{Type: "artifact_ref", ArtifactID: c.ArtifactRef.GetArtifactId()})
		}
	}
	out.Content = list
	return out
}

// textParameters are those of a text.
func textParameters(t *runtimev1.TextGenerateScenarioSpec) parameters {
	p := parameters{Temperature: t.GetTemperature(), TopP: t.GetTopP(), MaxTokens: max(0, t.GetMaxTokens())}
	if r := t.GetReasoning(); r.GetMode() != runtimev1.ReasoningMode_REASONING_MODE_UNSPECIFIED {
		p.Reasoning = reasoning{"off", max(0, r.GetBudgetTokens())}
		if r.GetMode() == runtimev1.ReasoningMode_REASONING_MODE_ON {
			p.Reasoning.Mode = "on"
		}
	}
	return p
}

// speechParameters are those of speech.
func speechParameters(t *runtimev1.SpeechSynthesizeScenarioSpec) parameters {
	v := t.GetVoiceRef()
	return parameters{Language: t.GetLanguage(), Format: t.GetAudioFormat(), Emotion: t.GetEmotion(),
		Speed: t.GetSpeed(), Pitch: t.GetPitch(), Volume: t.GetVolume(),
		SampleRate: max(0, t.GetSampleRateHz()), Voice: v.GetPresetVoiceId() + v.GetVoiceAssetId() + v.GetProviderVoiceRef()}
}
