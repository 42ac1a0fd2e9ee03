"""What no stage needs: show, export, import, embed, fill-mask, doctor, plan and the like."""
