package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// makeSecrets makes the files of the secrets that are not there, with the script that the compose file's first lines
// name. root is the folder of the compose file.
func (f *file) makeSecrets(ctx context.Context, root string) error {
	for name, s := range f.Secrets {
		_, err := os.Stat(s.File)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("secret %s: %w", name, err)
		}
		dir := filepath.Dir(s.File)
		fmt.Fprintf(os.Stderr, "topology: there is no %s: making the secrets in %s\n", s.File, dir)
		cmd := exec.CommandContext(ctx, filepath.Join(root, "tools", "secrets"), dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("tools/secrets %s: %w", dir, err)
		}
		return nil // it makes all
	}
	return nil
}
