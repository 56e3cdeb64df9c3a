#!/bin/sh
if [ "$(tr -d '[:space:]' </app/total)" = "$(wc -l </etc/passwd)" ]; then
    echo 1
else
    echo 0
fi >/logs/verifier/reward.txt
