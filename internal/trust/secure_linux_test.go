package trust

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv("TRUST_TEST") != "" {
		fmt.Print(Secure())
		return
	}
	os.Exit(m.Run())
}

// TestSecure runs this test as a user's own program, and as one with the setuid or the setgid bit.
func TestSecure(t *testing.T) {
	assert.False(t, Secure(), "a test has no more rights than its user")
	if os.Geteuid() != 0 {
		t.Skip("only root can make a program that others run with its rights: run the test as root")
	}
	for _, test := range []struct {
		name string
		mode os.FileMode
		want string
	}{
		{"own rights", 0o755, "false"},
		{"setuid", 0o755 | os.ModeSetuid, "true"},
		{"setgid", 0o755 | os.ModeSetgid, "true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			program := program(t)
			require.NoError(t, os.Chmod(program, test.mode))
			cmd := exec.Command(program)
			cmd.Env = append(os.Environ(), "TRUST_TEST=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err)
			assert.Equal(t, test.want, string(out))
		})
	}
}

// program copies this test to where every user may run it.
func program(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "trust")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	self, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer self.Close()
	out, err := os.OpenFile(filepath.Join(dir, "program"), os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, self)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	return out.Name()
}
