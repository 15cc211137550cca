package main

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// pod is what a kubelet does for a service beside starting it.
type pod struct {
	workload string            // what it is a pod of, as Deployment/agentstream-edge
	files    map[string]string // that are mounted: texts by path
	grace    time.Duration     // between SIGTERM and SIGKILL
	probes   map[string]probe  // by kind, with their defaults
	labels   map[string]string
	ports    map[string]int // of the container, by name
}

// isPodOfChart reports whether a service is one of the product's pods: not one of what is around them.
func (s service) isPodOfChart() bool { return s.pod != nil && s.kind() == "agentstream" }

// defaultGrace is Kubernetes's.
const defaultGrace = 30 * time.Second

// chart turns the objects of a rendered chart into services of a file.
type chart struct {
	file    *file
	objects []manifest
	secrets givenTexts
	configs givenTexts
}

// addPods adds a service for each pod of each workload. Jobs come first, as hooks do; before is what they need.
func (c *chart) addPods(before map[string]dependency) error {
	jobs := maps.Clone(before)
	for _, kind := range []string{"Job", "Deployment", "StatefulSet"} {
		for _, o := range c.objects {
			if o.Kind != kind {
				continue
			}
			var w workload
			if err := o.decode(&w); err != nil {
				return err
			}
			if err := c.addWorkload(o, w, jobs); err != nil {
				return fmt.Errorf("%s %s: %w", o.Kind, o.Metadata.Name, err)
			}
			if kind == "Job" {
				jobs[podName(o, 0)] = dependency{Condition: completed}
			}
		}
	}
	return nil
}

// podName names a pod of a workload. Those of a Job have no number: there is one.
func podName(o manifest, i int) string {
	if o.Kind == "Job" {
		return o.Metadata.Name
	}
	return o.Metadata.Name + "-" + strconv.Itoa(i)
}

// addWorkload adds the pods of one workload.
func (c *chart) addWorkload(o manifest, w workload, after map[string]dependency) error {
	n, err := c.replicas(o, w)
	if err != nil {
		return err
	}
	for i := range n {
		s, err := c.podService(w)
		if err != nil {
			return err
		}
		s.pod.workload = o.Kind + "/" + o.Metadata.Name
		s.DependsOn = maps.Clone(after)
		if w.Template.Spec.Containers[0].ReadinessProbe == nil && o.Kind != "Job" {
			return errors.New("it has no readiness probe")
		}
		c.file.Services[podName(o, i)] = s
	}
	return nil
}

// replicas is how many pods there are: where an autoscaler decides, its least.
func (c *chart) replicas(o manifest, w workload) (int, error) {
	for _, other := range c.objects {
		if other.Kind != "HorizontalPodAutoscaler" {
			continue
		}
		var a autoscaler
		if err := other.decode(&a); err != nil {
			return 0, err
		}
		if a.ScaleTargetRef.Name == o.Metadata.Name {
			return a.MinReplicas, nil
		}
	}
	if w.Replicas != nil {
		return *w.Replicas, nil
	}
	return 1, nil
}

// podService is the service that stands for a pod. It fails for what it could not keep.
func (c *chart) podService(w workload) (service, error) {
	spec := w.Template.Spec
	if len(spec.Containers) != 1 {
		return service{}, fmt.Errorf("%d containers", len(spec.Containers))
	}
	has := spec.Containers[0]
	if len(has.Command) > 0 || len(has.EnvFrom) > 0 || len(has.Lifecycle) > 0 {
		return service{}, errors.New("a command, envFrom or lifecycle of a container is not known here")
	}
	s := service{Image: "agentstream", Command: has.Args, Environment: map[string]string{},
		pod: &pod{files: map[string]string{}, grace: defaultGrace, probes: map[string]probe{},
			labels: w.Template.Metadata.Labels, ports: map[string]int{}}}
	if spec.TerminationGracePeriodSeconds != nil {
		s.pod.grace = time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second
	}
	for _, p := range has.Ports {
		s.pod.ports[p.Name] = p.ContainerPort
	}
	for _, v := range has.Env {
		value, err := c.value(v)
		if err != nil {
			return service{}, err
		}
		s.Environment[v.Name] = value
	}
	for kind, p := range map[string]*probe{"startup": has.StartupProbe, "readiness": has.ReadinessProbe,
		"liveness": has.LivenessProbe} {
		if p == nil {
			continue
		}
		full, err := p.complete(s.pod.ports)
		if err != nil {
			return service{}, fmt.Errorf("%s probe: %w", kind, err)
		}
		s.pod.probes[kind] = full
	}
	return s, c.mount(spec.Volumes, has, s.pod.files)
}

// value resolves a variable.
func (c *chart) value(v variable) (string, error) {
	switch {
	case v.ValueFrom == nil:
		return v.Value, nil
	case v.ValueFrom.SecretKeyRef != nil:
		return c.secrets.text(v.ValueFrom.SecretKeyRef.Name, v.ValueFrom.SecretKeyRef.Key)
	case v.ValueFrom.ConfigMapKeyRef != nil:
		return c.configs.text(v.ValueFrom.ConfigMapKeyRef.Name, v.ValueFrom.ConfigMapKeyRef.Key)
	}
	return "", fmt.Errorf("the variable %s has a source that is not known here", v.Name)
}

// mount lays out the files of the Secrets and ConfigMaps that a container mounts.
func (c *chart) mount(volumes []volume, has container, files map[string]string) error {
	for _, m := range has.VolumeMounts {
		if m.SubPath != "" {
			return fmt.Errorf("%s is mounted by a subPath", m.Name)
		}
		for _, v := range volumes {
			if v.Name != m.Name {
				continue
			}
			var texts map[string]string
			switch {
			case v.Secret != nil:
				texts = c.secrets[v.Secret.SecretName]
			case v.ConfigMap != nil:
				texts = c.configs[v.ConfigMap.Name]
			}
			if texts == nil {
				return fmt.Errorf("the volume %s is not there", v.Name)
			}
			for key, text := range texts {
				files[strings.TrimSuffix(m.MountPath, "/")+"/"+key] = text
			}
		}
	}
	return nil
}
