package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// place is what a service has instead of a container: a folder that stands for its root, and the paths and addresses of
// its texts mapped to that and to the loopback interface.
type place struct {
	t    *topology
	name string
	root string
	dirs []string // pairs: a path in the container, and the path that it is here
}

// makePlace makes the folder of a service with its secrets and configurations in it.
func (t *topology) makePlace(name string, s service) (*place, error) {
	p := &place{t: t, name: name, root: filepath.Join(t.dir, "roots", name)}
	p.dirs = append(p.dirs, "/run/secrets/", filepath.Join(p.root, "run/secrets")+"/")
	for _, v := range s.Volumes {
		parts := strings.Split(v, ":")
		if len(parts) < 2 {
			return nil, fmt.Errorf("%s: volume %q", name, v)
		}
		dir := filepath.Join(t.dir, "volumes", parts[0])
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		p.dirs = append(p.dirs, parts[1], dir)
	}
	for _, c := range s.Configs {
		p.dirs = append(p.dirs, c.Target, filepath.Join(p.root, c.Target))
	}
	var errs []error
	for _, secret := range s.Secrets {
		text, err := os.ReadFile(t.file.Secrets[secret].File)
		errs = append(errs, err, p.write("/run/secrets/"+secret, string(text)))
	}
	for _, c := range s.Configs {
		errs = append(errs, p.write(c.Target, t.file.Configs[c.Source].Content))
	}
	if s.pod != nil {
		for path, text := range s.pod.files {
			errs = append(errs, p.write(path, text))
		}
	}
	return p, errors.Join(errs...)
}

// write writes a file of the container, mapped; secrets for its user alone.
func (p *place) write(path, text string) error {
	secret := strings.HasPrefix(path, "/run/secrets/")
	path = filepath.Join(p.root, path)
	mapped, err := p.mapText(text)
	if err != nil {
		return err
	}
	mode := os.FileMode(0o755)
	if secret {
		mode = 0o700
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Dir(path)), 0o755),
		os.MkdirAll(filepath.Dir(path), mode)); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(mapped), mode&0o666)
}

var (
	address = regexp.MustCompile(`([\w.-]+):(\d{4,5})\b`)
	anyHost = regexp.MustCompile(`=:(\d{4,5})$`)
	listen  = regexp.MustCompile(`(?m)^(\s*listen )(\d+);`)
	path    = regexp.MustCompile(`(^|[\s"'=:])(/[\w/.-]+)`)
)

// mapText maps the addresses and the paths in a text.
func (p *place) mapText(text string) (string, error) {
	var errs []error
	at := func(service, port string) string {
		n, err := p.t.port(service, port)
		errs = append(errs, err)
		return "127.0.0.1:" + strconv.Itoa(n)
	}
	text = address.ReplaceAllStringFunc(text, func(found string) string {
		m := address.FindStringSubmatch(found)
		switch service, known := p.t.file.find(m[1]); {
		case known:
			return at(service, m[2])
		case m[1] == "0.0.0.0" || m[1] == "127.0.0.1":
			return at(p.name, m[2])
		}
		return found
	})
	text = anyHost.ReplaceAllStringFunc(text, func(found string) string {
		return "=" + at(p.name, anyHost.FindStringSubmatch(found)[1])
	})
	text = listen.ReplaceAllStringFunc(text, func(found string) string {
		m := listen.FindStringSubmatch(found)
		return m[1] + at(p.name, m[2]) + ";"
	})
	text = path.ReplaceAllStringFunc(text, func(found string) string {
		m := path.FindStringSubmatch(found)
		for i := 0; i < len(p.dirs); i += 2 {
			if rest, ok := strings.CutPrefix(m[2], p.dirs[i]); ok &&
				(rest == "" || rest[0] == '/' || strings.HasSuffix(p.dirs[i], "/")) {
				return m[1] + p.dirs[i+1] + rest
			}
		}
		return found
	})
	return text, errors.Join(errs...)
}

// all is mapped for several texts.
func (p *place) all(texts []string) (out []string, err error) {
	for _, text := range texts {
		m, err := p.mapText(text)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// port is the loopback port that stands for one of a service.
func (t *topology) port(service, port string) (int, error) {
	key := service + ":" + port
	if n := t.ports[key]; n != 0 {
		return n, nil
	}
	// Below those that the system assigns to clients.
	for n := 10000 + os.Getpid()%8000 + len(t.ports); n < 32000; n++ {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n)))
		if err == nil {
			ln.Close()
			if t.isPortTaken(n) {
				continue
			}
			t.ports[key] = n
			return n, nil
		}
	}
	return 0, errors.New("no free port")
}

// isPortTaken reports whether a service has the port.
func (t *topology) isPortTaken(n int) bool {
	for _, p := range t.ports {
		if p == n {
			return true
		}
	}
	return false
}
