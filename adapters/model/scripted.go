package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"agentstream/producers"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// Demo is the provider of scripted models.
const Demo = "demo"

// AddScripted adds the scripted models: demo answers as words do, and
//
//	demo/fail    emits one delta, and fails as a provider does (Internal)
//	demo/slow    takes 8 seconds, and emits its progress
//	demo/long    emits 4 MiB of text, as fast as they are taken
//	demo/silent  says nothing
//	demo/speech  speaks: a tone of 100 ms for each word, as pieces of audio/wav
//
// speed multiplies the pace of demo/slow; 0 waits nowhere.
func AddScripted(s *Set, words worker.Answer, speed float64) {
	s.Add(Demo, words, "demo")
	for name, say := range map[string]func(ctx context.Context, q *worker.Task, m *producers.Message) error{
		"demo/fail": failModel,
		"demo/slow": func(ctx context.Context, q *worker.Task, m *producers.Message) error {
			return slow(ctx, q, m, speed)
		},
		"demo/long": long, "demo/silent": silent, "demo/speech": emitSpeech,
	} {
		s.Add(Demo, func(ctx context.Context, q *worker.Task) (string, error) {
			m, err := q.Turn.Message(producers.MessageInfo{Model: name, Provider: Demo})
			if err != nil {
				return "", err
			}
			if err := say(ctx, q, m); err != nil {
				return "", err
			}
			n := len(strings.Fields(q.Text()))
			return "end_turn", m.End("end_turn", map[string]int{"input_tokens": n, "output_tokens": n})
		}, name)
	}
}

// failModel emits one delta, and fails as a provider does (Internal).
func failModel(_ context.Context, _ *worker.Task, m *producers.Message) error {
	if err := m.Text("This is as far as it goes, for the model fails now."); err != nil {
		return err
	}
	return &Error{Internal, errors.New("the scripted model has failed")}
}

// slowSteps are the seconds that the slow model takes.
const slowSteps = 8

func slow(ctx context.Context, q *worker.Task, m *producers.Message, speed float64) error {
	for i := 1; i <= slowSteps; i++ {
		if speed > 0 {
			select {
			case <-time.After(time.Duration(float64(time.Second) / speed)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := m.Text(fmt.Sprintf("Step %d of %d. ", i, slowSteps)); err != nil {
			return err
		}
		if err := q.Run.Emit(ctx, schema.TypeProgress,
			json.RawMessage(fmt.Sprintf(`{"done":%d,"total":%d}`, i, slowSteps))); err != nil {
			return err
		}
	}
	return nil
}

// longText is how much the long model says, in bytes.
const longText = 4 << 20

func long(_ context.Context, _ *worker.Task, m *producers.Message) error {
	const line = "A log only grows, and whoever reads it keeps one number.\n"
	piece := strings.Repeat(line, 4096/len(line))
	for left := longText; left > 0; left -= len(piece) {
		if err := m.Text(piece[:min(len(piece), left)]); err != nil {
			return err
		}
	}
	return nil
}

func silent(ctx context.Context, _ *worker.Task, _ *producers.Message) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Of speech: 16-bit samples, one channel.
const (
	sampleRate = 16000
	wordSpeech = sampleRate / 10 // samples
)

// emitSpeech emits a file of audio/wav, whose header has no length: a piece for each word.
func emitSpeech(_ context.Context, q *worker.Task, m *producers.Message) error {
	piece := wavHeader()
	for i := range max(1, len(strings.Fields(q.Text()))) {
		for n := range wordSpeech {
			v := int16(8000 * math.Sin(2*math.Pi*float64(220+20*(i%12))*float64(n)/sampleRate))
			piece = append(piece, byte(v), byte(uint16(v)>>8))
		}
		if err := m.Data("audio", "audio/wav", "", piece); err != nil {
			return err
		}
		piece = piece[:0]
	}
	return nil
}

// wavHeader returns the header of a stream: its lengths are the greatest ones.
func wavHeader() []byte {
	const rate, width = sampleRate, 2
	h := []byte("RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00")
	for _, v := range []uint32{rate, rate * width, width | 16<<16} {
		h = append(h, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	return append(h, "data\xff\xff\xff\xff"...)
}
