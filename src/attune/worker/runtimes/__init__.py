"""What this machine can run actions with: asked at the start, under the account that actions run under."""
