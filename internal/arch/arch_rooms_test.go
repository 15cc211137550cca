package arch

import (
	"fmt"
	"strings"
)

// maxUntested is how many lines of code a package may have without a test in its own folder.
const maxUntested = 300

// checkRooms looks for packages whose tests are elsewhere, or nowhere. What only tests import is tested by them.
func checkRooms(tr tree) (out []violation) {
	lines, tested := map[string]int{}, map[string]bool{}
	for _, s := range tr.sources {
		if s.test {
			tested[s.dir] = true
		} else if !s.made {
			lines[s.dir] += strings.Count(tr.texts[s.path], "\n")
		}
	}
	for dir, n := range lines {
		if n > maxUntested && !tested[dir] && !isTestKit(dir) {
			out = append(out, violation{dir, fmt.Sprintf("has %d lines and no test in its folder", n), "rooms:" + dir})
		}
	}
	return out
}
