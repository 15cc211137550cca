package s3

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"agentstream/persister/blob"
)

// Config configures a Store. Bucket must be set.
type Config struct {
	Bucket    string
	Prefix    string // before the names of objects, without slashes at its ends
	Endpoint  string // https://host:port, or http:// for a server within reach; default: Amazon's
	Region    string // default us-east-1
	PathStyle bool   // the bucket is in the path, not in the host name

	AccessKey, SecretKey string        // both or none; for the default see the package
	Timeout              time.Duration // until a server begins to answer; default 30 s
	PartSize             int64         // bytes of a part, and of the buffer of a Put; default 8 MiB, at least 5
}

// Parse parses a URL. It refuses one with credentials, and does not repeat them in the error.
func Parse(text string) (Config, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Config{}, errors.New("s3: the URL cannot be read") // the parser's text quotes it
	}
	if u.User != nil {
		return Config{}, errors.New("s3: the URL holds credentials: they belong into the environment")
	}
	if u.Scheme != "s3" || u.Host == "" || u.Port() != "" || u.Fragment != "" {
		return Config{}, errors.New("s3: the URL is not of the form s3://bucket/prefix?endpoint=…&region=…&path-style=true")
	}
	c := Config{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, errors.New("s3: the URL's parameters cannot be read")
	}
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "endpoint":
			c.Endpoint = value
		case "region":
			c.Region = value
		case "path-style":
			if c.PathStyle, err = strconv.ParseBool(value); err != nil {
				return Config{}, errors.New("s3: path-style is neither true nor false")
			}
		default:
			return Config{}, errors.New("s3: the URL has a parameter that is none of endpoint, region, path-style")
		}
	}
	return c, c.validate()
}

func (c *Config) withDefaults() {
	c.Region = cmp.Or(c.Region, "us-east-1")
	if c.Endpoint == "" {
		c.Endpoint = "https://s3." + c.Region + ".amazonaws.com"
	}
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.PartSize = cmp.Or(c.PartSize, 8<<20)
}

func (c *Config) validate() error {
	if c.Bucket == "" {
		return errors.New("s3: config needs a bucket")
	}
	for part := range strings.SplitSeq(c.Prefix, "/") {
		if c.Prefix != "" && (part == "" || part == "." || part == "..") {
			return errors.New("s3: the prefix has an empty part, or one of dots alone")
		}
	}
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" ||
			u.RawQuery != "" {
			return errors.New("s3: endpoint is not of the form https://host:port")
		}
		if u.User != nil {
			return errors.New("s3: endpoint holds credentials: they belong into the environment")
		}
	}
	if c.PartSize != 0 && c.PartSize < 5<<20 {
		return errors.New("s3: parts are smaller than 5 MiB")
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		return errors.New("s3: one of access key and secret key is missing")
	}
	return nil
}

// Bucket is a blob.ObjectStore in a bucket. Create it with Open.
type Bucket struct {
	cfg    Config
	client *minio.Core
}

var _ blob.ObjectStore = (*Bucket)(nil)

// retries is the number of times that the client repeats a request when a server is away or overloaded.
const retries = 4

// Open prepares a client. It does not connect: when the server is away, Ping and all other calls return errors until
// it is back.
func Open(cfg Config) (*Bucket, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.withDefaults()
	u, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, errors.New("s3: endpoint cannot be read")
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: cfg.Timeout,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   32,
		DisableCompression:    true, // ranges are of the bytes as stored
	}
	lookup := minio.BucketLookupDNS
	if cfg.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.NewCore(u.Host, &minio.Options{
		Creds: credentialsOf(cfg, transport), Secure: u.Scheme == "https", Region: cfg.Region,
		BucketLookup: lookup, Transport: transport, MaxRetries: retries,
	})
	if err != nil {
		return nil, fmt.Errorf("s3: open bucket %s: %w", cfg.Bucket, err)
	}
	return &Bucket{cfg: cfg, client: client}, nil
}

func credentialsOf(cfg Config, transport http.RoundTripper) *credentials.Credentials {
	if cfg.AccessKey != "" {
		return credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, "")
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Transport: transport, Timeout: 10 * time.Second}},
	})
}

// Base returns the beginning of the URIs of this store's objects.
func (s *Bucket) Base() string {
	base := "s3://" + s.cfg.Bucket + "/"
	if s.cfg.Prefix != "" {
		base += s.cfg.Prefix + "/"
	}
	return base
}

// Ping returns nil when the bucket can be reached.
func (s *Bucket) Ping(ctx context.Context) error {
	there, err := s.client.BucketExists(ctx, s.cfg.Bucket)
	if err != nil {
		return fmt.Errorf("s3: bucket %s: %w", s.cfg.Bucket, err)
	}
	if !there {
		return fmt.Errorf("s3: there is no bucket %s", s.cfg.Bucket)
	}
	return nil
}

// object returns the name in the bucket. It accepts only names of objects of runs.
func (s *Bucket) object(name string) (string, error) {
	if err := blob.ValidName(name); err != nil {
		return "", err
	}
	return s.full(name), nil
}

func (s *Bucket) full(name string) string {
	if s.cfg.Prefix == "" {
		return name
	}
	return s.cfg.Prefix + "/" + name
}

// Put implements blob.ObjectStore.
func (s *Bucket) Put(ctx context.Context, name string, body io.Reader) error {
	object, err := s.object(name)
	if err != nil {
		return err
	}
	err = s.put(ctx, object, body, true)
	if code := minio.ToErrorResponse(err); code.StatusCode == http.StatusPreconditionFailed ||
		code.StatusCode == http.StatusConflict {
		err = blob.ErrExists
	}
	if err != nil {
		return fmt.Errorf("s3: put %s: %w", name, err)
	}
	return nil
}

// put reads one part first: most runs are not longer, and need one request.
func (s *Bucket) put(ctx context.Context, object string, body io.Reader, ifNone bool) error {
	opts := minio.PutObjectOptions{ContentType: "application/zstd", PartSize: uint64(s.cfg.PartSize), NumThreads: 1,
		SendContentMd5: true}
	if ifNone {
		opts.SetMatchETagExcept("*")
	}
	var first bytes.Buffer
	n, err := io.CopyN(&first, body, s.cfg.PartSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var src io.Reader = bytes.NewReader(first.Bytes())
	if err == nil {
		n, src = -1, io.MultiReader(&first, body)
	}
	_, err = s.client.Client.PutObject(ctx, s.cfg.Bucket, object, src, n, opts)
	if code := minio.ToErrorResponse(err).StatusCode; code == http.StatusNotImplemented && ifNone && n >= 0 {
		return s.put(ctx, object, bytes.NewReader(first.Bytes()), false)
	}
	return err
}

// Read implements blob.ObjectStore.
func (s *Bucket) Read(ctx context.Context, name string, offset, length int64) ([]byte, int64, error) {
	object, err := s.object(name)
	if err != nil {
		return nil, 0, err
	}
	data, size, err := s.read(ctx, object, offset, length)
	if code := minio.ToErrorResponse(err); code.StatusCode == http.StatusNotFound && code.Code != minio.NoSuchBucket {
		err = blob.ErrNotFound
	}
	if err != nil {
		return nil, 0, fmt.Errorf("s3: read %s: %w", name, err)
	}
	return data, size, nil
}

func (s *Bucket) read(ctx context.Context, object string, offset, length int64) (data []byte, size int64, err error) {
	if length < 1 {
		return nil, 0, errors.New("no bytes are asked for")
	}
	var opts minio.GetObjectOptions
	start, end := offset, offset+length-1
	if offset < 0 {
		start, end = 0, -length
	}
	if err := opts.SetRange(start, end); err != nil {
		return nil, 0, err
	}
	if offset == 0 && length == 1 {
		opts.Set("Range", "bytes=0-0") // the client's own form means the whole object
	}
	body, info, header, err := s.client.GetObject(ctx, s.cfg.Bucket, object, opts)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	size = info.Size // of the response; of the whole object when the server ignored the range
	if _, total, ok := strings.Cut(header.Get("Content-Range"), "/"); ok {
		if size, err = strconv.ParseInt(total, 10, 64); err != nil {
			return nil, 0, fmt.Errorf("server says Content-Range %q", header.Get("Content-Range"))
		}
	} else if size > length || offset > 0 {
		return nil, 0, errors.New("server gives the whole object where a range was asked for")
	}
	data, err = io.ReadAll(io.LimitReader(body, length+1))
	if err == nil && int64(len(data)) > length {
		err = fmt.Errorf("server gives more than the %d bytes that were asked for", length)
	}
	return data, size, err
}

// Delete implements blob.ObjectStore.
func (s *Bucket) Delete(ctx context.Context, name string) error {
	object, err := s.object(name)
	if err != nil {
		return err
	}
	err = s.client.RemoveObject(ctx, s.cfg.Bucket, object, minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).StatusCode != http.StatusNotFound {
		return fmt.Errorf("s3: delete %s: %w", name, err)
	}
	return nil
}

// List implements blob.ObjectStore.
func (s *Bucket) List(ctx context.Context, prefix string) iter.Seq2[blob.Object, error] {
	return func(yield func(blob.Object, error) bool) {
		opts := minio.ListObjectsOptions{Prefix: s.full(prefix), Recursive: true}
		for o := range s.client.Client.ListObjectsIter(ctx, s.cfg.Bucket, opts) {
			if o.Err != nil {
				yield(blob.Object{}, fmt.Errorf("s3: list: %w", o.Err))
				return
			}
			name := strings.TrimPrefix(o.Key, s.full(""))
			if !yield(blob.Object{Name: name, Size: o.Size, Modified: o.LastModified}, nil) {
				return
			}
		}
	}
}

// Sweep aborts uploads of objects whose names begin with prefix, if they began before a time and were not finished:
// their parts take space.
func (s *Bucket) Sweep(ctx context.Context, prefix string, before time.Time) error {
	ctx, cancel := context.WithCancel(ctx) // ends the list when this function returns early
	defer cancel()
	for u := range s.client.Client.ListIncompleteUploads(ctx, s.cfg.Bucket, s.full(prefix), true) {
		if u.Err != nil {
			return fmt.Errorf("s3: sweep: %w", u.Err)
		}
		if !u.Initiated.Before(before) {
			continue
		}
		if err := s.client.AbortMultipartUpload(ctx, s.cfg.Bucket, u.Key, u.UploadID); err != nil {
			return fmt.Errorf("s3: sweep: %w", err)
		}
	}
	return nil
}
