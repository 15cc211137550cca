package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/oasdiff/yaml"
)

// natsValues is what is read of values of the NATS chart. A setting of config that is not here is an error.
type natsValues struct {
	Config struct {
		Cluster struct {
			Enabled  bool
			Replicas int
		}
		JetStream struct {
			Enabled   bool
			FileStore struct {
				Enabled bool
				PVC     struct {
					Enabled bool
					Size    string
				}
			}
			MemoryStore struct {
				Enabled bool
				MaxSize string
			}
			Merge map[string]any
		}
		Merge map[string]any
	}
}

// readNATSValues reads values files, of which later ones add to earlier ones.
func readNATSValues(paths []string) (v natsValues, err error) {
	v.Config.JetStream.MemoryStore.MaxSize = "256Mi" // the chart's default
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return v, err
		}
		data, err := yaml.YAMLToJSON(text)
		if err != nil {
			return v, fmt.Errorf("%s: %w", path, err)
		}
		var all struct{ Config json.RawMessage }
		if err := json.Unmarshal(data, &all); err != nil {
			return v, fmt.Errorf("%s: %w", path, err)
		}
		strict := json.NewDecoder(strings.NewReader(string(all.Config)))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&v.Config); err != nil {
			return v, fmt.Errorf("%s: config: %w", path, err)
		}
	}
	if !v.Config.Cluster.Enabled || !v.Config.JetStream.Enabled || !v.Config.JetStream.FileStore.Enabled {
		return v, errors.New("the values of the NATS chart make no cluster with files")
	}
	return v, nil
}

// natsPod is the name of a pod of the NATS chart, natsHost the one that DNS has for it.
func natsPod(i int) string { return "nats-" + strconv.Itoa(i) }

func natsHost(i int) string { return natsPod(i) + ".nats-headless" }

// addNATS adds the pods that the NATS chart makes of its values, with their configuration as the chart writes it.
// Files of the Secret nats-config are beside it, for include.
func (c *chart) addNATS(v natsValues) (after map[string]dependency) {
	after = map[string]dependency{}
	c.file.Configs["nats"] = config{natsConfig(v)}
	for key, text := range c.secrets["nats-config"] {
		c.file.Configs["nats/"+key] = config{text}
	}
	for i := range v.Config.Cluster.Replicas {
		s := service{Image: "nats", Command: []string{"--config", "/etc/nats-config/nats.conf"},
			Environment: map[string]string{"POD_NAME": natsPod(i)}, Volumes: []string{natsPod(i) + ":/data"},
			Configs: []target{{"nats", "/etc/nats-config/nats.conf"}},
			Healthcheck: &healthcheck{Test: []string{"CMD", "wget", "http://127.0.0.1:8222/healthz"}, Interval: "2s",
				Retries: 30}}
		for key := range c.secrets["nats-config"] {
			s.Configs = append(s.Configs, target{"nats/" + key, "/etc/nats-config/" + key})
		}
		c.file.Services[natsPod(i)] = s
		c.file.hosts[natsHost(i)] = natsPod(i)
		after[natsPod(i)] = dependency{Condition: healthy}
	}
	c.file.hosts["nats"] = natsPod(0) // the chart's Service
	return after
}

// natsConfig is the configuration that the chart writes.
func natsConfig(v natsValues) string {
	js := v.Config.JetStream
	var b strings.Builder
	b.WriteString("server_name: $POD_NAME\nlame_duck_grace_period: 10s\nlame_duck_duration: 30s\n" +
		"listen: 0.0.0.0:4222\nhttp: 0.0.0.0:8222\n")
	b.WriteString("cluster {\n  name: nats\n  listen: 0.0.0.0:6222\n  no_advertise: true\n  routes: [\n")
	for i := range v.Config.Cluster.Replicas {
		fmt.Fprintf(&b, "    nats://%s:6222\n", natsHost(i))
	}
	b.WriteString("  ]\n}\njetstream {\n  store_dir: /data\n")
	if size := js.FileStore.PVC.Size; size != "" {
		fmt.Fprintf(&b, "  max_file_store: %s\n", size)
	}
	if js.MemoryStore.Enabled {
		fmt.Fprintf(&b, "  max_memory_store: %s\n", js.MemoryStore.MaxSize)
	} else {
		b.WriteString("  max_memory_store: 0\n")
	}
	writeNATS(&b, "  ", js.Merge)
	b.WriteString("}\n")
	writeNATS(&b, "", v.Config.Merge)
	return b.String()
}

// bare is a value that the chart writes without quotes.
var bare = regexp.MustCompile(`^<< (.*) >>$`)

// writeNATS writes settings in the syntax of a NATS server.
func writeNATS(b *strings.Builder, indent string, settings map[string]any) {
	for _, key := range keysInOrder(settings) {
		switch value := settings[key].(type) {
		case map[string]any:
			fmt.Fprintf(b, "%s%s {\n", indent, key)
			writeNATS(b, indent+"  ", value)
			b.WriteString(indent + "}\n")
		case string:
			if key == "$include" {
				fmt.Fprintf(b, "%sinclude %s\n", indent, value)
				continue
			}
			text := strconv.Quote(value)
			if m := bare.FindStringSubmatch(value); m != nil {
				text = m[1]
			}
			fmt.Fprintf(b, "%s%s: %s\n", indent, key, text)
		default:
			text, err := json.Marshal(value)
			if err != nil { // it was read as JSON
				panic(err)
			}
			fmt.Fprintf(b, "%s%s: %s\n", indent, key, text)
		}
	}
}
