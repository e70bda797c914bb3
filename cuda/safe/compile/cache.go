package compile

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
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
	entryMagic        = "cudabind image 1"
	entrySuffix       = ".image"
	temporary         = ".tmp-"
)

// cacheFolder is the folder of the cache, "" if the user has none.
func (o *Options) cacheFolder() string {
	if o.CacheFolder != "" {
		if dir, err := filepath.Abs(o.CacheFolder); err == nil {
			return dir
		}
		return o.CacheFolder
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "cudabind", "compile")
}

// openCache opens the cache's folder, and makes it if need be. It returns nil without an error if
// it is the default one and cannot be made: programs run also where nothing can be written.
func openCache(o *Options) (*cache, error) {
	dir := o.cacheFolder()
	if dir == "" {
		return nil, nil
	}
	if err := makeFolder(dir); err != nil {
		if o.CacheFolder == "" {
			return nil, nil
		}
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil {
		err = private(info, dir)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	c := &cache{root, o.CacheBytes}
	if c.limit <= 0 {
		c.limit = defaultCacheBytes
	}
	return c, nil
}

// makeFolder makes a folder that is closed to others, in folders that are not.
func makeFolder(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (c *cache) close() {
	if c != nil {
		c.root.Close()
	}
}

// get returns the product stored for a key. An entry that is broken, or not ours, is removed.
func (c *cache) get(key string) *product {
	if c == nil {
		return nil
	}
	f, err := c.root.Open(key + entrySuffix)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	var p *product
	if private(info, key) == nil {
		if data, err := io.ReadAll(f); err == nil {
			p = decode(key, data)
		}
	}
	if p == nil {
		c.root.Remove(key + entrySuffix)
		return nil
	}
	if now := time.Now(); now.Sub(info.ModTime()) > time.Minute {
		c.root.Chtimes(key+entrySuffix, now, now) // it was used
	}
	return p
}

// put stores an image. That it cannot be stored is no error: it is compiled again next time.
func (c *cache) put(key string, p *product) {
	data := encode(key, p)
	if c == nil || int64(len(data)) > c.limit {
		return
	}
	name := temporary + rand.Text()
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
		case err != nil || !info.Mode().IsRegular():
		case strings.HasSuffix(e.Name(), entrySuffix):
			images = append(images, info)
			total += info.Size()
		case strings.HasPrefix(e.Name(), temporary) && time.Since(info.ModTime()) > time.Hour:
			c.root.Remove(e.Name())
		}
	}
	slices.SortFunc(images, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, oldest := range images {
		if total <= c.limit {
			return
		}
		c.root.Remove(oldest.Name())
		total -= oldest.Size()
	}
}

// An entry is the magic, the SHA-256 of the key and all that follows, the length of a head in JSON,
// the head, and the code.
type entryHead struct {
	Names map[string]string
	Log   string
}

func encode(key string, p *product) []byte {
	head, _ := json.Marshal(entryHead{p.Names, p.Log})
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(head)))
	body = append(append(body, head...), p.Code...)
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
	n := uint64(binary.LittleEndian.Uint32(body))
	if body = body[4:]; n > uint64(len(body)) {
		return nil
	}
	var head entryHead
	if json.Unmarshal(body[:n], &head) != nil {
		return nil
	}
	return &product{Code: body[n:], Names: head.Names, Log: head.Log}
}
