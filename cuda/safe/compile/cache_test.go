//go:build unix

package compile

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var someProduct = &product{Code: []byte("code"), Names: map[string]string{"k<int>": "_Z1kIiEvv"}, Log: "warned"}

func cacheIn(t *testing.T, dir string, limit int64) *cache {
	t.Helper()
	c, err := openCache(&Options{CacheFolder: dir, CacheBytes: limit})
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "cache")
	c := cacheIn(t, dir, 0)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	assert.Nil(t, c.get("a"))
	c.put("a", someProduct)
	assert.Equal(t, someProduct, c.get("a"))
	assert.Nil(t, c.get("b"))
	info, err = os.Stat(filepath.Join(dir, "a.image"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Len(t, names, 1, "nothing else is left")
	var none *cache
	none.put("a", someProduct)
	assert.Nil(t, none.get("a"))
	none.close()
}

func TestCacheBroken(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	c := cacheIn(t, dir, 0)
	file := filepath.Join(dir, "a.image")
	whole := encode("a", someProduct)
	for name, test := range map[string]struct {
		data []byte
		mode fs.FileMode
	}{
		"empty":               {nil, 0o600},
		"cut":                 {whole[:len(whole)-1], 0o600},
		"longer":              {append(append([]byte{}, whole...), 0), 0o600},
		"another key's":       {encode("b", someProduct), 0o600},
		"one bit":             {append(append([]byte{}, whole[:60]...), append([]byte{whole[60] ^ 1}, whole[61:]...)...), 0o600},
		"others can write it": {whole, 0o666},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, test.data, 0o600))
			require.NoError(t, os.Chmod(file, test.mode))
			assert.Nil(t, c.get("a"))
			assert.NoFileExists(t, file, "it is removed")
			c.put("a", someProduct)
			assert.Equal(t, someProduct, c.get("a"))
		})
	}
	t.Run("a folder", func(t *testing.T) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "d.image"), 0o700))
		assert.Nil(t, c.get("d"))
	})
	t.Run("a link out of it", func(t *testing.T) {
		outside := filepath.Join(t.TempDir(), "a")
		require.NoError(t, os.WriteFile(outside, encode("l", someProduct), 0o600))
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "l.image")))
		assert.Nil(t, c.get("l"))
	})
}

func TestCacheRefused(t *testing.T) {
	for _, mode := range []fs.FileMode{0o777, 0o770, 0o702} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		_, err := openCache(&Options{CacheFolder: dir})
		assert.ErrorIs(t, err, fs.ErrPermission, mode)
		assert.ErrorContains(t, err, "chmod 700")
	}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := openCache(&Options{CacheFolder: file})
	assert.Error(t, err, "a file")

	t.Setenv("XDG_CACHE_HOME", file)
	c, err := openCache(&Options{})
	assert.NoError(t, err, "where nothing can be written, nothing is cached")
	assert.Nil(t, c)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	c, err = openCache(&Options{})
	assert.NoError(t, err)
	assert.Nil(t, c)
}

func TestCacheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which can give a folder away")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, os.Chown(dir, 12345, 12345))
	_, err := openCache(&Options{CacheFolder: dir})
	assert.ErrorIs(t, err, fs.ErrPermission)
	assert.ErrorContains(t, err, "another user")
}

func TestCacheLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	size := int64(len(encode("0", someProduct)))
	c := cacheIn(t, dir, 3*size)
	for n, key := range []string{"0", "1", "2"} {
		c.put(key, someProduct)
		old := time.Now().Add(time.Duration(n-10) * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, key+entrySuffix), old, old))
	}
	left, kept := filepath.Join(dir, temporary+"left"), filepath.Join(dir, temporary+"kept")
	for _, file := range []string{left, kept} {
		require.NoError(t, os.WriteFile(file, []byte("half"), 0o600))
	}
	old := time.Now().Add(-2 * time.Hour)
	require.NoError(t, os.Chtimes(left, old, old))
	assert.NotNil(t, c.get("0"), "the oldest is used")
	c.put("3", someProduct)
	assert.NotNil(t, c.get("0"))
	assert.Nil(t, c.get("1"), "now the oldest")
	assert.NotNil(t, c.get("2"))
	assert.NotNil(t, c.get("3"))
	assert.NoFileExists(t, left)
	assert.FileExists(t, kept, "another process may be writing it")
	c.put("4", &product{Code: make([]byte, 4*size)})
	assert.Nil(t, c.get("4"), "larger than the cache")
	assert.NotNil(t, c.get("3"))
}

func TestCacheAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	var all sync.WaitGroup
	for range 8 {
		c := cacheIn(t, dir, 2000)
		all.Go(func() {
			for n := range 200 {
				key := string(rune('a' + n%20))
				if p := c.get(key); p != nil {
					assert.Equal(t, someProduct, p)
				}
				c.put(key, someProduct)
			}
		})
	}
	all.Wait()
	names, err := filepath.Glob(filepath.Join(dir, temporary+"*"))
	require.NoError(t, err)
	assert.Empty(t, names)
}

// TestKey: texts that follow each other are not taken for others.
func TestKey(t *testing.T) {
	seen := map[string][]string{}
	for _, texts := range [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {}, {""}, {strings.Repeat("a", 8)}} {
		k := key{sha256.New()}
		k.add(texts...)
		sum := k.sum()
		assert.Nil(t, seen[sum])
		seen[sum] = texts
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("a", encode("a", someProduct))
	f.Add("", encode("", &product{}))
	f.Add("a", []byte(entryMagic))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		if p := decode(key, data); p != nil {
			again := decode(key, encode(key, p))
			assert.Equal(t, p, again)
		}
		// Whatever follows the hash must not be read out of bounds.
		k := sha256.Sum256(append([]byte(key), data...))
		decode(key, append(append([]byte(entryMagic), k[:]...), data...))
	})
}
