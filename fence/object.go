package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// ErrChanged is what a [Bucket] returns if an object is not the one that the caller expects.
var ErrChanged = errors.New("the object has changed")

// A Bucket stores objects and replaces them on conditions, as S3, R2 and MinIO do. Implement it with their client.
type Bucket interface {
	// Get returns an object and its ETag; an empty ETag if there is no such object. It sees every Put that has returned.
	Get(ctx context.Context, key string) (body []byte, etag string, err error)
	// Put stores an object, in one request, if the one that is stored has the ETag (If-Match: etag); with an empty ETag, if
	// there is none (If-None-Match: *). Otherwise it changes nothing and returns ErrChanged, wrapped or not: S3 answers 412,
	// 409 or 404. Objects with other bodies have other ETags.
	Put(ctx context.Context, key string, body []byte, etag string) error
}

// An Object is data in a bucket. The token is the first line of the object. S3 could also keep it beside the object, as
// metadata or a tag, but then the ETag need not change, and a writer that was overtaken would find the ETag that it knows.
//
//	17952496930779↵
//	the data
type Object struct {
	bucket Bucket
	key    string
}

var _ Resource = (*Object)(nil)

// NewObject returns the resource at a key of a bucket. It sends nothing.
func NewObject(bucket Bucket, key string) *Object { return &Object{bucket, key} }

// Read implements [Resource]. The first read with a token replaces the object, to show the token; later ones only read.
func (o *Object) Read(ctx context.Context, token Token) ([]byte, error) {
	data, err := o.change(ctx, token, func(data []byte) []byte { return data })
	return data, failed(ctx, "read", o.key, err)
}

// Write implements [Resource]. A Put that fails shows no token.
func (o *Object) Write(ctx context.Context, token Token, data []byte) error {
	_, err := o.change(ctx, token, func([]byte) []byte { return data })
	return failed(ctx, "write", o.key, err)
}

// change replaces the object, if it has seen no higher token, by one with this token and what next returns. If another
// writer has changed the object meanwhile, change begins again: that writer may be a later holder, or an earlier copy of
// the same request.
func (o *Object) change(ctx context.Context, token Token, next func(data []byte) []byte) ([]byte, error) {
	for {
		if err := begin(ctx, token); err != nil {
			return nil, err
		}
		body, etag, err := o.bucket.Get(ctx, o.key)
		if err != nil {
			return nil, err
		}
		highest, old, err := unpack(body, etag)
		if err != nil {
			return nil, err
		}
		if err := compare(o.key, token, highest); err != nil {
			return nil, err
		}
		data := next(old)
		if highest == token && bytes.Equal(data, old) {
			return data, nil
		}
		if err = o.bucket.Put(ctx, o.key, pack(token, data), etag); err == nil {
			return data, nil
		}
		if !errors.Is(err, ErrChanged) {
			return nil, err
		}
	}
}

// pack returns the object's body.
func pack(token Token, data []byte) []byte { return append(fmt.Appendf(nil, "%d\n", token), data...) }

// unpack takes a body apart. Without an object the token is 0.
func unpack(body []byte, etag string) (token Token, data []byte, err error) {
	if etag == "" {
		return 0, nil, nil
	}
	line, data, found := bytes.Cut(body, []byte("\n"))
	if !found || token.Scan(line) != nil {
		return 0, nil, errors.New("the object does not begin with a token")
	}
	return token, data, nil
}
