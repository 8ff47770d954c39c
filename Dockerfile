FROM python:3.11-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/kvroute && /opt/kvroute/bin/pip install --no-cache-dir '.[fast,otel]'

FROM python:3.11-slim
COPY --from=build /opt/kvroute /opt/kvroute
ENV PATH=/opt/kvroute/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8080
ENTRYPOINT ["kvroute"]
CMD ["serve"]
