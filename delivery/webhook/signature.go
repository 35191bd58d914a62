package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
)

// sign returns a header value with the message's signatures, one for each secret that has not expired. A secret that
// cannot be decrypted is an error: the receiver may need its signature.
func sign(secrets []Secret, id string, at time.Time, body []byte) (string, error) {
	var header []byte
	for i := range secrets {
		if !secrets[i].Signs(at) {
			continue
		}
		if err := secrets[i].Unusable; err != nil {
			return "", fmt.Errorf("the secret %s cannot be decrypted: %w", secrets[i].ID, err)
		}
		mac := hmac.New(sha256.New, secrets[i].Key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		if len(header) > 0 {
			header = append(header, ' ')
		}
		header = base64.StdEncoding.AppendEncode(append(header, "v1,"...), mac.Sum(nil))
	}
	return string(header), nil
}
