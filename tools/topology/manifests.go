package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/oasdiff/yaml"
)

// manifest is an object of Kubernetes. Its spec is read when its kind is known.
type manifest struct {
	Kind     string
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec             json.RawMessage
	Data, StringData map[string]string
}

// workload is the spec of a Deployment, a StatefulSet or a Job.
type workload struct {
	Replicas *int
	Template struct {
		Metadata struct{ Labels map[string]string }
		Spec     podSpec
	}
}

type podSpec struct {
	TerminationGracePeriodSeconds *int
	Volumes                       []volume
	Containers                    []container
}

type volume struct {
	Name      string
	Secret    *struct{ SecretName string }
	ConfigMap *struct{ Name string }
}

type container struct {
	Name                                        string
	Command, Args                               []string
	Env                                         []variable
	EnvFrom                                     []json.RawMessage
	Ports                                       []containerPort
	Lifecycle                                   json.RawMessage
	StartupProbe, ReadinessProbe, LivenessProbe *probe
	VolumeMounts                                []struct{ Name, MountPath, SubPath string }
}

type containerPort struct {
	Name          string
	ContainerPort int
}

type variable struct {
	Name, Value string
	ValueFrom   *struct {
		SecretKeyRef, ConfigMapKeyRef *struct{ Name, Key string }
	}
}

// autoscaler is the spec of a HorizontalPodAutoscaler.
type autoscaler struct {
	ScaleTargetRef struct{ Name string }
	MinReplicas    int
}

// exposure is the spec of a Service.
type exposure struct {
	Selector map[string]string
	Ports    []struct {
		Name       string
		Port       int
		TargetPort any
	}
}

// readObjects returns the objects of a rendered chart.
func readObjects(path string) (all []manifest, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		data, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		var o manifest
		if err := json.Unmarshal(data, &o); err != nil {
			if strings.Contains(doc, "kind: PrometheusRule") || strings.Contains(doc, "kind: ServiceMonitor") {
				continue // they are no part of a pod
			}
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// decode reads the spec of an object.
func (o manifest) decode(into any) error {
	if err := json.Unmarshal(o.Spec, into); err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, o.Metadata.Name, err)
	}
	return nil
}

// givenTexts are Secrets and ConfigMaps: the texts by name and key.
type givenTexts map[string]map[string]string

// readGiven reads the Secrets that are there before the chart: a folder for each, a file for each key.
func readGiven(dir string) (givenTexts, error) {
	given := givenTexts{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name := filepath.Base(filepath.Dir(path))
		if given[name] == nil {
			given[name] = map[string]string{}
		}
		given[name][d.Name()] = string(text)
		return err
	})
	return given, err
}

// add takes the texts of the Secrets or ConfigMaps that the chart renders.
func (g givenTexts) add(objects []manifest, kind string) error {
	var errs []error
	for _, o := range objects {
		if o.Kind != kind {
			continue
		}
		texts := map[string]string{}
		for key, text := range o.Data {
			if kind == "Secret" {
				plain, err := base64.StdEncoding.DecodeString(text)
				errs = append(errs, err)
				text = string(plain)
			}
			texts[key] = text
		}
		for key, text := range o.StringData {
			texts[key] = text
		}
		g[o.Metadata.Name] = texts
	}
	return errors.Join(errs...)
}

// text returns one text.
func (g givenTexts) text(name, key string) (string, error) {
	text, ok := g[name][key]
	if !ok {
		return "", fmt.Errorf("there is no %s in %s", key, name)
	}
	return text, nil
}
