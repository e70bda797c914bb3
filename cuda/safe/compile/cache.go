package compile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cudabind/cudabind/internal/trust"
)

// key collects all that an image follows from.
type key struct{ hash.Hash }

// add adds texts, so that no two lists of texts give the same key.
func (k key) add(texts ...string) {
	var n [8]byte
	for _, text := range texts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(text)))
		k.Write(n[:])
		io.WriteString(k, text)
	}
}

func (k key) sum() string { return hex.EncodeToString(k.Hash.Sum(nil)) }

// cache is a folder with a file for each image. Files appear whole, by renaming, and are removed
// whole, so any number of processes can use it without locks. A nil cache holds nothing.
type cache struct {
	root  *os.Root
	limit int64
}

const (
	defaultCacheBytes = 256 << 20
	entryKind         = "cudabind image " // how images of all versions of the format begin
	entryMagic        = entryKind + "2"
	entrySuffix       = ".image"
	temporary         = ".tmp-"
)

// The names of files that the cache makes.
var (
	entryName     = regexp.MustCompile(`^[0-9a-f]{64}\` + entrySuffix + `$`)
	temporaryName = regexp.MustCompile(`^\` + temporary + `[A-Z2-7]{26}$`)
)

// secure tells whether the environment may choose no folder.
var secure = trust.Secure

// cacheFolder is the folder of the cache, "" if the user has none.
func (o *Options) cacheFolder() string {
	if o.CacheFolder != "" {
		if dir, err := filepath.Abs(o.CacheFolder); err == nil {
			return dir
		}
		return o.CacheFolder
	}
	dir, err := os.UserCacheDir()
	if err != nil || secure() {
		return ""
	}
	return filepath.Join(dir, "cudabind", "compile")
}

// openCache opens the cache's folder, and makes it if need be. The default folder is not used if
// that fails, or if it is not the user's alone: programs run also where nothing can be written. One
// that the caller has chosen must be usable, unless it is for headers only.
func openCache(o *Options) (*cache, error) {
	dir := o.cacheFolder()
	if dir == "" {
		return nil, nil
	}
	root, err := openFolder(dir, o.CacheFolder == "")
	if err != nil {
		if o.CacheFolder == "" || o.NoCache {
			return nil, nil
		}
		return nil, fmt.Errorf("the cache folder %s cannot be used: %w; set Options.CacheFolder to another, or Options.NoCache", dir, err)
	}
	c := &cache{root, o.CacheBytes}
	if c.limit == 0 {
		c.limit = defaultCacheBytes
	}
	return c, nil
}

// openFolder opens a folder that is the user's alone. It makes one that does not exist; of the
// default folder it first makes the folders around it, in folders of the user only.
func openFolder(dir string, byDefault bool) (*os.Root, error) {
	parent := filepath.Dir(dir)
	if !byDefault {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return nil, err
		}
	}
	if err := makeAround(parent); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = trust.Private(info, dir)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// makeAround makes a folder, also those around it, where only the user and the
// administrator decides. With sudo, the folder of another user is none: what root makes there locks
// that user out.
func makeAround(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		if err = makeAround(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
		if err == nil || errors.Is(err, fs.ErrExist) {
			info, err = os.Stat(dir)
		}
	}
	if err == nil && !steady(info) {
		err = fmt.Errorf("%w: %s belongs to another user, or others can replace what is in it", fs.ErrPermission, dir)
	}
	return err
}

func (c *cache) close() {
	if c != nil {
		c.root.Close()
	}
}

// get returns the product stored for a key. It returns nil for an entry that is broken, or not
// ours; put replaces it.
func (c *cache) get(key string) *product {
	if c == nil {
		return nil
	}
	info, err := c.root.Stat(key + entrySuffix)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := c.root.OpenFile(key+entrySuffix, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil
	}
	data, info, err := readOpen(f, key, c.limit)
	if err != nil || trust.Private(info, key) != nil {
		return nil
	}
	p := decode(key, []byte(data))
	if now := time.Now(); p != nil && now.Sub(info.ModTime()) > time.Minute {
		c.root.Chtimes(key+entrySuffix, now, now) // it was used
	}
	return p
}

// put stores an image. That it cannot be stored is no error: it is compiled again next time.
func (c *cache) put(key string, p *product) {
	if c == nil {
		return
	}
	data := encode(key, p)
	if int64(len(data)) > c.limit {
		return
	}
	name := temporaryFile()
	f, err := c.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = c.root.Rename(name, key+entrySuffix)
	}
	if err != nil {
		c.root.Remove(name)
		return
	}
	c.trim()
}

// trim removes the images that were not used for the longest time, down to the limit, and what
// processes that were killed have left.
func (c *cache) trim() {
	entries, err := fs.ReadDir(c.root.FS(), ".")
	if err != nil {
		return
	}
	var images []fs.FileInfo
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular() || trust.Private(info, "") != nil:
		case entryName.MatchString(e.Name()):
			images = append(images, info)
			total += info.Size()
		case temporaryName.MatchString(e.Name()) && time.Since(info.ModTime()) > time.Hour:
			c.remove(e.Name(), "")
		}
	}
	slices.SortFunc(images, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, oldest := range images {
		if total <= c.limit {
			return
		}
		c.remove(oldest.Name(), entryKind)
		total -= oldest.Size()
	}
}

// remove removes a file that the cache has made, which begins as an entry does, or with least if it
// was not written to its end.
func (c *cache) remove(name, least string) {
	f, err := c.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return
	}
	begin, err := io.ReadAll(io.LimitReader(f, int64(len(entryKind))))
	f.Close()
	if err == nil && strings.HasPrefix(entryKind, string(begin)) && len(begin) >= len(least) {
		c.root.Remove(name)
	}
}

// temporaryFile is a name that no other file of the cache has.
func temporaryFile() string {
	name := []byte(temporary)
	for range 26 {
		name = append(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[rand.N(32)])
	}
	return string(name)
}

// An entry is the magic, the SHA-256 of the key and all that follows, a number of texts, the texts, each after
// its length, and the code. The texts are the log, and each name with the one that it has in the code.
func encode(key string, p *product) []byte {
	texts := []string{p.Log}
	for _, name := range slices.Sorted(maps.Keys(p.Names)) {
		texts = append(texts, name, p.Names[name])
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(texts)))
	for _, text := range texts {
		body = append(binary.LittleEndian.AppendUint32(body, uint32(len(text))), text...)
	}
	body = append(body, p.Code...)
	sum := sha256.Sum256(append([]byte(key), body...))
	return slices.Concat([]byte(entryMagic), sum[:], body)
}

// decode returns nil if data is no whole entry for the key.
func decode(key string, data []byte) *product {
	rest, ok := bytes.CutPrefix(data, []byte(entryMagic))
	if !ok || len(rest) < sha256.Size+4 {
		return nil
	}
	sum, body := rest[:sha256.Size], rest[sha256.Size:]
	if got := sha256.Sum256(append([]byte(key), body...)); !bytes.Equal(sum, got[:]) {
		return nil
	}
	n := binary.LittleEndian.Uint32(body)
	body = body[4:]
	texts := make([]string, 0, min(n, 16))
	for range n {
		text, more, ok := cutText(body)
		if !ok {
			return nil
		}
		texts, body = append(texts, text), more
	}
	if n%2 == 0 { // a log, and pairs
		return nil
	}
	p := &product{Code: body, Log: texts[0]}
	for pair := range slices.Chunk(texts[1:], 2) {
		if p.Names == nil {
			p.Names = map[string]string{}
		}
		p.Names[pair[0]] = pair[1]
	}
	return p
}

// cutText takes the first text, which stands after its length, off data.
func cutText(data []byte) (text string, rest []byte, ok bool) {
	if len(data) < 4 {
		return "", nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if data = data[4:]; n > uint64(len(data)) {
		return "", nil, false
	}
	return string(data[:n]), data[n:], true
}
