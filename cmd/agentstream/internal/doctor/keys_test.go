package doctor

import (
	"strings"
	"testing"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/keyservice"
)

// TestKeysOfTenants: a tenant that is encrypted without a key is a finding, as is a key service that is not there.
func TestKeysOfTenants(t *testing.T) {
	folder := t.TempDir()
	file, err := keyservice.NewFile(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Create(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tenants []string
		service string
		want    string
	}{
		"nothing":     {nil, "", ""},
		"all":         {[]string{"*"}, "file:" + folder, ""},
		"a key":       {[]string{"acme"}, "file:" + folder, ""},
		"no key":      {[]string{"acme", "globex"}, "file:" + folder, "agentstream keys create --tenant globex"},
		"no service":  {[]string{"acme"}, "", "mend: --key-service"},
		"not mounted": {[]string{"acme"}, "file:" + folder + "/none", "cannot be used"},
		"no token":    {[]string{"acme"}, "vault+https://127.0.0.1:1", "--key-service-token"},
	} {
		x := &examination{}
		x.sealing(t.Context(), c.tenants, &cli.KeyFlags{KeyService: c.service})
		got := strings.Join(x.found, "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
