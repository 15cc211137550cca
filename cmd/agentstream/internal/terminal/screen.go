package terminal

import (
	"io"

	"golang.org/x/term"
)

// Screen is what is known about where the output goes.
type Screen struct {
	Terminal bool       // the cursor can be moved: text is wrapped at words as it comes
	Color    bool       // styles may be used
	Width    func() int // columns, asked before each paragraph; nil or 0 never wraps
}

// ScreenOf looks at the output and at the environment: NO_COLOR (no-color.org) and TERM=dumb.
func ScreenOf(out io.Writer, env func(string) (string, bool)) Screen {
	f, ok := out.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Screen{}
	}
	if name, _ := env("TERM"); name == "dumb" {
		return Screen{}
	}
	noColor, _ := env("NO_COLOR")
	return Screen{Terminal: true, Color: noColor == "", Width: func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return w
	}}
}
