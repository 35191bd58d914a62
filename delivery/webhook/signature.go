package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"
)

// sign returns a header value with the message's signatures, one for each secret that has not expired.
func sign(secrets []Secret, id string, at time.Time, body []byte) string {
	var header []byte
	for i := range secrets {
		if !secrets[i].Signs(at) {
			continue
		}
		mac := hmac.New(sha256.New, secrets[i].Key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		if len(header) > 0 {
			header = append(header, ' ')
		}
		header = base64.StdEncoding.AppendEncode(append(header, "v1,"...), mac.Sum(nil))
	}
	return string(header)
}
