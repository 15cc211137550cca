package process

import (
	"strings"
	"testing"
	"testing/fstest"

	"agentstream/cmd/agentstream/internal/cli"
)

func TestMemoryBudget(t *testing.T) {
	for _, tt := range []struct {
		name, flag, env string
		most, system    int64
		want            int64
		own             bool
	}{
		{"nothing is known", "", "", 0, 0, 0, false},
		{"a container", "", "", 0, 1000 << 20, 900 << 20, true},
		{"dev", "", "", 400 << 20, 0, 400 << 20, true},
		{"dev in a large container", "", "", 400 << 20, 8 << 30, 400 << 20, true},
		{"dev in a small container", "", "", 400 << 20, 200 << 20, 180 << 20, true},
		{"the flag", "2GiB", "", 400 << 20, 1 << 30, 2 << 30, true},
		{"off", "off", "", 400 << 20, 1 << 30, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", tt.env)
			b, own, err := (&MemoryFlags{Memory: tt.flag}).budget(tt.most, tt.system)
			if err != nil || b.whole/10*10 != tt.want/10*10 || own != tt.own {
				t.Errorf("%+v, own %v, %v", b, own, err)
			}
			if b.heap+b.whole/8 > b.whole && b.whole > 0 {
				t.Errorf("%d of %d for the heap", b.heap, b.whole)
			}
		})
	}
	for text, want := range map[string]int64{"400MiB": 400 << 20, "1GiB": 1 << 30, "65536KiB": 64 << 20,
		"100000000": 100000000} {
		if n, err := cli.ParseSize(text); err != nil || n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for _, bad := range []string{"", "x", "-1", "0", "1MB", "1.5GiB", "10MiB", "99999999999GiB", "GiB"} {
		b, _, err := (&MemoryFlags{Memory: bad}).budget(0, 0)
		if bad != "" && (err == nil || !strings.HasPrefix(err.Error(), "--memory ")) {
			t.Errorf("%q: %+v, %v", bad, b, err)
		}
	}
}

func TestDevMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"":                              400 << 20,
		"MemFree: 1 kB\n":               400 << 20,
		"MemTotal: all\n":               400 << 20,
		"MemTotal:        4194304 kB\n": 400 << 20,
		"MemTotal:       12582912 kB\n": 1 << 30,
		"MemTotal:      100000000 kB\nMemFree: 1 kB\n": 2 << 30,
	} {
		if got := devMemory(fstest.MapFS{"proc/meminfo": {Data: []byte(text)}}); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := devMemory(fstest.MapFS{}); got != 400<<20 {
		t.Errorf("unknown: %d", got)
	}
}

func TestGroupLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"none": {map[string]string{}, 0},
		"a container": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1048576000\n"},
			1048576000},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		"a service": {map[string]string{"proc/self/cgroup": "0::/system.slice/x.service\n",
			"sys/fs/cgroup/system.slice/x.service/memory.max": "500\n", "sys/fs/cgroup/system.slice/memory.max": "400\n"}, 400},
		"version 1": {map[string]string{"proc/self/cgroup": "5:cpu:/a\n4:memory:/b\n",
			"sys/fs/cgroup/memory/b/memory.limit_in_bytes": "700\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n"}, 700},
		"version 1, v2": {map[string]string{"proc/self/cgroup": "4:memory:/b\n0::/\n",
			"sys/fs/cgroup/memory/b/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for p, text := range tt.files {
				files[p] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := memoryMax(files); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}
