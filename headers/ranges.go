package headers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// One request reads blockSize, and up to maxBlock where it continues another.
const (
	blockSize = 64 << 10
	maxBlock  = 1 << 20
)

// client goes through the proxy of the environment, as pip does.
var client = &http.Client{Timeout: time.Minute}

// errNoRanges is the error for a file that can only be had whole.
var errNoRanges = errors.New("it cannot be read in parts")

// remote reads parts of a file on a web server, and keeps them. One goroutine
// at a time may use it.
type remote struct {
	ctx    context.Context
	url    string
	size   int64
	blocks []block
}

// block is a part of a file.
type block struct {
	start int64
	data  []byte
}

func (b block) end() int64 { return b.start + int64(len(b.data)) }

// openRemote reads the last block of the file, where a zip file has its
// directory.
func openRemote(ctx context.Context, url string) (*remote, error) {
	r := &remote{ctx: ctx, url: url}
	last, size, err := r.get(fmt.Sprintf("bytes=-%d", blockSize))
	if err != nil {
		return nil, err
	}
	if int64(len(last.data)) != min(blockSize, size) || last.end() != size {
		return nil, fmt.Errorf("asked for its last %d bytes, the server sent bytes %d to %d of %d",
			blockSize, last.start, last.end()-1, size)
	}
	r.size = size
	r.blocks = append(r.blocks, last)
	return r, nil
}

func (r *remote) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if at >= r.size {
			return n, io.EOF
		}
		b, err := r.block(at)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], b.data[at-b.start:])
	}
	return n, nil
}

// block gives the block with the byte at a place in the file. A block that
// continues another is twice as long: large headers take few requests.
func (r *remote) block(at int64) (block, error) {
	length := int64(blockSize)
	for _, b := range r.blocks {
		if b.start <= at && at < b.end() {
			return b, nil
		}
		if b.end() == at {
			length = min(2*int64(len(b.data)), maxBlock)
		}
	}
	end := min(at+length, r.size)
	b, size, err := r.get(fmt.Sprintf("bytes=%d-%d", at, end-1))
	if err != nil {
		return block{}, err
	}
	if b.start != at || b.end() != end || size != r.size {
		return block{}, fmt.Errorf("asked for bytes %d to %d of %d, the server sent bytes %d to %d of %d",
			at, end-1, r.size, b.start, b.end()-1, size)
	}
	r.blocks = append(r.blocks, b)
	return b, nil
}

// get requests a range and returns it with the size of the file.
func (r *remote) get(ranges string) (b block, size int64, err error) {
	req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return block{}, 0, fmt.Errorf("%w: %w", errNoRanges, err)
	}
	req.Header.Set("Range", ranges)
	resp, err := client.Do(req)
	if err != nil {
		return block{}, 0, fmt.Errorf("%w: %w", errNoRanges, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent {
		return block{}, 0, fmt.Errorf("%w: the server answers %s", errNoRanges, resp.Status)
	}
	var last int64
	is := resp.Header.Get("Content-Range")
	if _, err := fmt.Sscanf(is, "bytes %d-%d/%d", &b.start, &last, &size); err != nil ||
		b.start < 0 || last < b.start || last >= size || last-b.start >= maxBlock {
		return block{}, 0, fmt.Errorf("%w: the server sends the range %q", errNoRanges, is)
	}
	b.data = make([]byte, last-b.start+1)
	if n, err := io.ReadFull(resp.Body, b.data); err != nil {
		return block{}, 0, fmt.Errorf("the server sent %d of %d bytes: %w", n, len(b.data), err)
	}
	return b, size, nil
}
